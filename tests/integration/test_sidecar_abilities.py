"""What a real SideCar says of real programs: when they save, and which exception ended them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reshape_sidecar.wire import WIRE_LEVEL, Phase, Saves
from tests.support import training_programs as programs
from tests.support.sidecar_bed import Bed, bed


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Bed]:
    with bed(tmp_path) as made:
        yield made


@pytest.mark.parametrize(
    ("program", "when"),
    [
        (programs.PLAIN, Saves.SIGTERM),
        (programs.SAVES_NOTHING, Saves.NEVER),
        (programs.IGNORES, Saves.NEVER),
        (programs.SESSION, Saves.BOUNDARY),
    ],
    ids=["a handler of its own", "no handler", "SIGTERM ignored", "a session"],
)
def test_the_sidecar_says_when_a_program_saves(job: Bed, program: str, when: Saves) -> None:
    job.training(program)
    running = job.coordinator.until("running", lambda o: o.phase is Phase.RUNNING)
    assert running.saves is when


@pytest.mark.parametrize("framework", ["other", "keras"], ids=["without the hook", "the hook"])
def test_the_exception_that_ends_a_program_is_reported(job: Bed, framework: str) -> None:
    job.initialised(programs.CRASHES, framework=framework)
    job.coordinator.want("run", "GPU-0")  # type: ignore[arg-type]
    ended = job.coordinator.until("crashed", lambda o: o.phase is Phase.CRASHED)
    assert (ended.exit_code, ended.exception) == (1, "SystemError")
    assert ended.exception_message == "no such layer"
    assert "SystemError: no such layer" in (ended.error or "")


def test_a_controller_of_the_release_before_gets_reports_that_it_can_read(job: Bed) -> None:
    job.coordinator.level = 1
    job.training(programs.SESSION)
    running = job.coordinator.until("running", lambda o: o.phase is Phase.RUNNING)
    assert running.saves is None
    assert all(report.saves is None for report in job.coordinator.reports)


@pytest.mark.parametrize("level", [2, WIRE_LEVEL], ids=["the release before", "this release"])
def test_a_sidecar_knows_what_to_prepare_from_a_controller_of_this_release(
    job: Bed, level: int
) -> None:
    job.coordinator.level = level
    job.training(programs.SESSION)
    job.coordinator.until("running", lambda o: o.phase is Phase.RUNNING)
    assert job.coordinator.desired is not None
    desired = replace(job.coordinator.desired, prepare=("GPU-1",))
    job.coordinator.set(desired)
    before = job.coordinator.until("running", lambda o: o.phase is Phase.RUNNING).sequence
    later = job.coordinator.until("a later report", lambda o: o.sequence > before + 3)
    assert later.prepare == (("GPU-1",) if level == WIRE_LEVEL else None)
    assert (later.generation, later.phase) == (desired.generation, Phase.RUNNING)
