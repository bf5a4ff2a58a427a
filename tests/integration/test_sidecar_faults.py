"""Full disks, lost folders, damaged memories, frozen agents: training goes on, and so does work."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape_sidecar.agent.memory import MEMORY_FILE
from reshape_sidecar.wire import Mode, Observed, OutcomeKind, Phase
from tests.support import training_programs as programs
from tests.support.sidecar_bed import DEVICES, Bed, bed, eventually

UNLIMITED = resource.RLIM_INFINITY


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Bed]:
    with bed(tmp_path) as made:
        yield made


def phases(job: Bed) -> set[Phase]:
    return {report.phase for report in job.coordinator.reports}


def refusal_of(job: Bed) -> Observed:
    """Ask for other devices with a short deadline; return the report that refuses them."""
    generation = job.coordinator.want(Mode.RUN, *DEVICES[:2], save_deadline_s=0.5)
    seen = job.coordinator.until(
        "an answer", lambda o: o.outcome is not None and o.outcome.generation == generation
    )
    assert seen.outcome is not None
    assert (seen.outcome.kind, seen.pid is None) == (OutcomeKind.REFUSED, False)
    return seen


@pytest.mark.parametrize("further", ["raises", "aborts", "is-killed"])
def test_a_program_that_ends_in_a_step_after_its_last_save_has_saved_and_left(
    job: Bed, further: str
) -> None:
    job.training(programs.STEPS, f"further={further}", "further_s=0.2")
    generation = job.coordinator.want(Mode.RUN, *DEVICES[:2])
    seen = job.started(generation)
    assert seen.outcome is not None
    assert (seen.outcome.kind, seen.outcome.lost_steps) == (OutcomeKind.STOPPING, 0)
    assert Phase.CRASHED not in phases(job)


def test_a_program_that_ends_in_that_step_after_the_deadline_is_no_crash(job: Bed) -> None:
    job.training(programs.STEPS, "further=is-killed", "further_s=1.5")
    refusal_of(job)
    end = job.coordinator.until(
        "its end", lambda o: o.pid is None and o.phase is not Phase.STOPPING
    )
    assert end.phase is Phase.INITIALIZED
    generation = job.coordinator.want(Mode.RUN, *DEVICES)
    seen = job.started(generation)
    assert Phase.CRASHED not in phases(job)
    assert seen.outcome is not None
    assert seen.outcome.lost_steps == 0


def test_an_agent_that_began_in_that_step_finds_on_disk_that_the_program_had_saved(
    job: Bed,
) -> None:
    job.training(programs.STEPS, "further=is-killed", "further_s=3")
    refused = refusal_of(job)
    job.kill_agent()
    reports_again(job, refused)
    end = job.coordinator.until(
        "its end", lambda o: o.pid is None and o.phase is not Phase.STOPPING
    )
    assert end.phase is Phase.INITIALIZED
    generation = job.coordinator.want(Mode.RUN, *DEVICES)
    seen = job.started(generation)
    assert seen.outcome is not None
    assert (seen.outcome.kind, seen.outcome.lost_steps) == (OutcomeKind.STOPPING, 0)
    assert Phase.CRASHED not in phases(job)


def disk_of(job: Bed, *, full: bool) -> None:
    """Init and its agents, also later ones, cannot write to any file (as on a full disk)."""
    for pid in (job.init().pid, job.agent()):
        try:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0 if full else UNLIMITED, UNLIMITED))
        except ProcessLookupError:
            continue


def agents(job: Bed, count: int) -> None:
    """Wait until ``count`` different agents were seen."""
    seen: set[int] = set()

    def look() -> bool:
        seen.add(job.agent())
        return len(seen) >= count

    eventually(f"{count} agents", look)


def reports_again(job: Bed, before: Observed) -> Observed:
    return job.coordinator.until(
        "a report of training as it was before",
        lambda o: (
            o.sequence > before.sequence + 100 and (o.phase, o.pid) == (Phase.RUNNING, before.pid)
        ),
    )


def test_training_outlives_a_full_disk_and_its_agent_reports_on_it(job: Bed) -> None:
    before = job.training(programs.STEPS)
    disk_of(job, full=True)
    job.kill_agent()
    reports_again(job, before)
    assert job.alive()
    disk_of(job, full=False)
    generation = job.coordinator.want(Mode.RUN, *DEVICES[:2])
    seen = job.started(generation)
    assert seen.outcome is not None
    assert seen.outcome.lost_steps == 0


def test_what_cannot_be_kept_on_a_full_disk_is_not_done_and_training_goes_on(job: Bed) -> None:
    before = job.training(programs.PLAIN)
    disk_of(job, full=True)
    generation = job.coordinator.want(Mode.SAVE_AND_STOP)
    agents(job, 3)
    assert job.alive()
    assert all(o.generation == before.generation for o in job.coordinator.reports[-2:])
    disk_of(job, full=False)
    disk_of(job, full=False)
    seen = job.coordinator.until("stopped", lambda o: o.stopped_generation == generation)
    assert seen.outcome is not None
    assert seen.outcome.kind is OutcomeKind.STOPPING


def test_training_outlives_the_loss_of_its_containers_folder(job: Bed) -> None:
    job.training(programs.PLAIN)
    moved = job.folder.run.with_name("run-moved")
    training, init = job.process(), job.init()
    os.rename(job.folder.run, moved)
    try:
        job.kill_agent(init.pid)
        eventually("the agent is missed", lambda: "cannot be started" in job.log("init.log"))
        assert Path(f"/proc/{training.pid}").exists()
        os.kill(training.pid, signal.SIGKILL)
        eventually("its end", lambda: f"training pid {training.pid} ended" in job.log("init.log"))
        assert Path(f"/proc/{init.pid}").exists()
        job.remove(grace_s=1.0)
        assert job.left() == []
    finally:
        os.rename(moved, job.folder.run)


@pytest.mark.parametrize("text", [None, '{"type":"Memory","boo', ""], ids=["lost", "torn", "empty"])
def test_an_agent_that_lost_its_memory_finds_training_as_it_was(job: Bed, text: str | None) -> None:
    job.training(programs.STEPS)
    before = job.coordinator.until("its first step", lambda o: o.phase is Phase.RUNNING)
    os.kill(job.agent(), signal.SIGSTOP)
    memory = job.folder.run / MEMORY_FILE
    memory.unlink()
    if text is not None:
        memory.write_text(text)
    job.kill_agent()
    reports_again(job, before)
    generation = job.coordinator.want(Mode.RUN, *DEVICES[:2])
    seen = job.started(generation)
    assert seen.outcome is not None
    assert seen.outcome.lost_steps == 0
    assert job.log("init.log").count("SIGTERM to training") == 1


def test_an_agent_that_missed_the_end_says_how_far_training_got(job: Bed) -> None:
    job.training(programs.STEPS, "total=40", "save_s=2")
    job.coordinator.until("its last step", lambda o: o.progress.step == 40)
    agent = job.agent()
    os.kill(agent, signal.SIGSTOP)
    eventually("the end of training", lambda: not job.alive())
    os.kill(agent, signal.SIGKILL)
    seen = job.coordinator.until("finished", lambda o: o.phase is Phase.FINISHED)
    assert (seen.progress.step, seen.progress.checkpoint_step) == (40, 40)


def test_a_check_that_fails_later_does_not_hide_what_training_does(job: Bed) -> None:
    """The self-check of an agent that was started again finds the data gone; training reads on."""
    data = job.path / "data"
    data.mkdir()
    before = job.training(programs.PLAIN, dataset=str(data))
    data.rmdir()
    job.kill_agent()
    reports_again(job, before)
    os.kill(job.process().pid, signal.SIGKILL)
    seen = job.coordinator.until("crashed", lambda o: o.phase is Phase.CRASHED)
    assert seen.exit_code == 137
    job.coordinator.want(Mode.RUN, *DEVICES)
    seen = job.coordinator.until("unfit", lambda o: o.phase is Phase.UNFIT)
    assert "dataset" in (seen.error or "")


def test_a_frozen_agent_goes_on_where_it_was(job: Bed) -> None:
    before = job.training(programs.STEPS)
    agent = job.agent()
    os.kill(agent, signal.SIGSTOP)
    generation = job.coordinator.want(Mode.RUN, *DEVICES[:2], save_deadline_s=30.0)
    time.sleep(3.0)  # far longer than a heartbeat
    assert job.alive()
    os.kill(agent, signal.SIGCONT)
    seen = job.started(generation)
    assert job.agent() == agent
    assert seen.sequence > before.sequence
    assert seen.outcome is not None
    assert seen.outcome.lost_steps == 0
