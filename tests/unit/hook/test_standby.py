"""A successor that fails before its release: dropped, or released at the same moment."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reshape_sidecar import codec
from reshape_sidecar.contract import ENV_GENERATION, ENV_STANDBY_FD, Release, StandbyReport
from reshape_sidecar.wire import PrepareStage

SCRIPT = """
import os, time
from reshape_sidecar.contract import ENV_PREPARED_IN_VAIN, ENV_STANDBY_FD
from reshape_sidecar.hook import standby

if ENV_STANDBY_FD not in os.environ:
    print("cold start:", os.environ[ENV_PREPARED_IN_VAIN])
    raise SystemExit(7)
standby.STEP_ON_ZEROS_MAX_S = 0.1
here = standby.Standby(int(os.environ[ENV_STANDBY_FD]))
here.start(lambda: None)
here.reach_barrier()
if os.environ["FAILURE"] == "exception":
    here.give_up("an exception")
with here.step_on_zeros():
    time.sleep(60)
"""
WAIT_S = 30.0
FAILURES = (("step", "a step on zeros did not end"), ("exception", "an exception"))


@contextmanager
def successor(
    folder: Path, failure: str
) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """A process that fails in the way of ``failure``, and init's end of its connection."""
    (folder / "script.py").write_text(SCRIPT)
    ours, its = socket.socketpair()
    ours.settimeout(WAIT_S)
    with ours, its, (folder / "output").open("w") as output:
        process = subprocess.Popen(
            [sys.executable, str(folder / "script.py")],
            env={
                **os.environ,
                "FAILURE": failure,
                ENV_GENERATION: "1",
                ENV_STANDBY_FD: str(its.fileno()),
            },
            pass_fds=[its.fileno()],
            stdout=output,
        )
        its.close()
        try:
            yield process, ours
        finally:
            process.kill()
            process.wait()


def failure(connection: socket.socket) -> StandbyReport:
    """The first report of a failure."""
    with connection.makefile() as lines:
        for line in lines:
            report = codec.loads(StandbyReport, line)
            if report.stage is PrepareStage.FAILED:
                return report
    raise AssertionError("the successor ended without a report of its failure")


@pytest.mark.parametrize(("kind", "reason"), FAILURES)
def test_a_successor_reports_its_failure_and_ends_when_it_is_dropped(
    tmp_path: Path, kind: str, reason: str
) -> None:
    with successor(tmp_path, kind) as (process, connection):
        assert reason in failure(connection).reason
        assert process.poll() is None
        connection.shutdown(socket.SHUT_RDWR)
        assert process.wait(WAIT_S) == 0


@pytest.mark.parametrize(("kind", "reason"), FAILURES)
def test_a_release_that_crosses_the_report_of_a_failure_starts_cold(
    tmp_path: Path, kind: str, reason: str
) -> None:
    with successor(tmp_path, kind) as (process, connection):
        failure(connection)
        release = Release(generation=2, spawned_at_s=1.0, environment=())
        connection.sendall(codec.dumps(release).encode() + b"\n")
        assert process.wait(WAIT_S) == 7
    assert f"cold start: {reason}" in (tmp_path / "output").read_text()
