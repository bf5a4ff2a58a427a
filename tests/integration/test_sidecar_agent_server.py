"""The agent's own server on its Unix socket, as a training process meets it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from reshape_sidecar import codec
from reshape_sidecar.contract import HookPhase, HookReport
from reshape_sidecar.init import files
from reshape_sidecar.wire import Phase, Progress
from tests.support import training_programs as programs
from tests.support.sidecar_bed import Bed, bed


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Bed]:
    with bed(tmp_path) as made:
        yield made


def ask(job: Bed, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = HTTPConnection("agent")
    connection.sock = files.connect(job.folder.socket, 10.0)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def report(job: Bed, said: HookReport) -> int:
    return ask(job, "POST", "/training", codec.dumps(said).encode())[0]


def test_a_report_flows_into_the_observed_state(job: Bed) -> None:
    seen = job.training(programs.PLAIN)
    said = HookReport(
        seen.generation,
        HookPhase.TRAINING,
        Progress(step=7, total_steps=90, loss=0.5, accuracy=0.75),
        import_s=1.5,
        first_step_s=2.5,
    )
    assert report(job, said) == 204
    after = job.coordinator.until("its step", lambda o: o.progress.step == 7)
    assert after.phase is Phase.RUNNING
    assert (after.progress.loss, after.progress.accuracy) == (0.5, 0.75)
    assert (after.times.import_s, after.times.first_step_s) == (1.5, 2.5)
    assert after.times.sidecar_s is not None


def test_a_hooked_program_runs_only_after_its_first_step(job: Bed) -> None:
    seen = job.training(programs.PLAIN)
    assert report(job, HookReport(seen.generation, HookPhase.BUILDING, import_s=0.5)) == 204
    after = job.coordinator.until("its import", lambda o: o.times.import_s == 0.5)
    assert after.phase is Phase.STARTING


def test_a_report_of_an_earlier_start_changes_nothing(job: Bed) -> None:
    seen = job.training(programs.PLAIN)
    late = HookReport(seen.generation - 1, HookPhase.TRAINING, Progress(step=99))
    assert report(job, late) == 409
    status, body = ask(job, "GET", "/health")
    assert status == 200
    assert json.loads(body)["phase"] in ("starting", "running")
    assert json.loads(body).get("progress", {}).get("step", 0) == 0


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff", b'{"generation": "2"}', b"[" * 100_000])
def test_garbage_gets_one_clear_answer(job: Bed, body: bytes) -> None:
    job.training(programs.PLAIN)
    status, answer = ask(job, "POST", "/training", body)
    assert status == 400
    assert json.loads(answer)["code"] == "bad-report"
    assert job.alive()


def open_sockets(pid: int) -> set[str]:
    found = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(os.readlink(path))
    return {name for name in found if name.startswith("socket:")}


def test_the_agent_listens_on_no_network_port(job: Bed) -> None:
    job.initialised(programs.PLAIN)
    inodes = open_sockets(job.init().pid) | open_sockets(job.agent())
    assert inodes, "at least the Unix sockets"
    listening = "0A"
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            assert fields[3] != listening or f"socket:[{fields[9]}]" not in inodes
