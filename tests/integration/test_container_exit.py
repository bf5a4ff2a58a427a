"""The exit code of a container says whether its job is complete, has failed, or was interrupted."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape_sidecar import codec
from reshape_sidecar.init.values import EXIT_FILE, FAILED_FOR_GOOD, UNFINISHED, ExitFile
from reshape_sidecar.wire import Mode, Phase
from tests.support import training_programs as programs
from tests.support.sidecar_bed import DEVICES, Bed, bed

COMPLETES = "open('ready-2', 'w').close()"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Bed]:
    with bed(tmp_path) as made:
        yield made


def exit_code(job: Bed, pid: int) -> int:
    """Wait for the end of init, which the launcher in this process has started."""
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    said = codec.loads(ExitFile, (job.folder.run / EXIT_FILE).read_text())
    assert said == ExitFile(0, "ended on request; no process is left"), "in order, in each case"
    return code


def test_an_evicted_container_of_a_job_that_trains_is_not_successful(job: Bed) -> None:
    job.training(programs.PLAIN)
    init = job.init().pid
    os.kill(init, signal.SIGTERM)
    job.coordinator.until("that it ends", lambda o: o.ending)
    assert exit_code(job, init) == UNFINISHED


def test_an_evicted_container_of_a_complete_job_is_successful(job: Bed) -> None:
    job.training(COMPLETES)
    job.coordinator.until("its end", lambda o: o.phase is Phase.FINISHED)
    init = job.init().pid
    os.kill(init, signal.SIGTERM)
    assert exit_code(job, init) == 0


def test_a_container_that_the_controller_ends_fails_only_if_its_job_has_failed(job: Bed) -> None:
    job.training(programs.PLAIN)
    init = job.init().pid
    job.coordinator.want(Mode.EXIT)
    assert exit_code(job, init) == 0
    assert not any(report.ending for report in job.coordinator.reports), "it was asked"


def test_a_container_of_a_job_that_has_failed_for_good_has_failed(job: Bed) -> None:
    job.initialised(programs.CRASHES)
    job.coordinator.want(Mode.RUN, *DEVICES)
    job.coordinator.until("crash", lambda o: o.phase is Phase.CRASHED)
    init = job.init().pid
    job.coordinator.want(Mode.EXIT, failed=True)
    assert exit_code(job, init) == FAILED_FOR_GOOD
