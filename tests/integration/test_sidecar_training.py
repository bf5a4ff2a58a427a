"""Starting, stopping and restarting a real training process under a real SideCar."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reshape_sidecar import limits
from reshape_sidecar.contract import ENV_HASHED_GENERATION
from reshape_sidecar.init import processes as proc
from reshape_sidecar.init.logs import HOLE_BYTES
from reshape_sidecar.wire import Mode, OnSaveTimeout, OutcomeKind, Phase
from tests.support import training_programs as programs
from tests.support.sidecar_bed import DEVICES, Bed, bed, eventually


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Bed]:
    with bed(tmp_path) as made:
        yield made


def test_a_job_is_initialised_without_any_training_process(job: Bed) -> None:
    seen = job.initialised(programs.PLAIN)
    assert (seen.pid, seen.devices) == (None, ())
    assert job.status().running


def test_training_starts_on_exactly_the_desired_devices(job: Bed) -> None:
    seen = job.training(programs.PLAIN, size=2)
    assert seen.devices == DEVICES[:2]
    eventually("its output", lambda: f"works on {','.join(DEVICES[:2])}" in job.log())
    assert proc.alive(seen.pid or 0, seen.start_time or 0)


def test_a_program_without_a_hook_counts_as_running_after_a_while(job: Bed) -> None:
    job.training(programs.PLAIN)
    seen = job.coordinator.until("running", lambda o: o.phase is Phase.RUNNING)
    assert seen.process_restarts == 0


def test_a_program_imports_the_session_api_that_nobody_installed_and_nothing_else_of_ours(
    job: Bed,
) -> None:
    """The interpreter is not the one that has this package and its libraries."""
    bare = str(Path(sys.base_prefix) / "bin" / "python3")
    job.training(programs.SESSION, size=2, command=(bare, "train.py"))
    eventually("its output", lambda: "trains on" in job.log())
    assert f"trains on 2 with {job.folder.run}/python/reshape_sidecar/__init__.py" in job.log()
    assert "has tornado False" in job.log()
    generation = job.coordinator.want(Mode.RUN, *DEVICES[:1])
    after = job.started(generation)
    assert after.outcome is not None
    assert (after.outcome.saved_step or 0) > 0


def test_a_program_with_a_session_runs_from_its_first_step_on_however_long_it_imports(
    job: Bed,
) -> None:
    """PyTorch takes longer than a program without hook and session is waited for."""
    job.training(programs.SESSION, str(limits.UNHOOKED_RUNNING_S + 1.0))
    seen = job.coordinator.until("running", lambda o: o.phase is Phase.RUNNING)
    assert seen.times.first_step_s is not None
    assert seen.times.first_step_s > limits.UNHOOKED_RUNNING_S


def test_a_shrink_saves_stops_and_starts_again_in_the_living_container(job: Bed) -> None:
    before = job.training(programs.STEPS)
    init = job.init()
    job.coordinator.until("steps", lambda o: o.progress.step > 20)
    generation = job.coordinator.want(Mode.RUN, *DEVICES[:2])
    after = job.started(generation)
    assert job.init() == init
    assert (after.devices, after.process_restarts) == (DEVICES[:2], 1)
    assert after.pid != before.pid
    outcome = after.outcome
    assert outcome is not None
    assert (outcome.generation, outcome.kind) == (generation, OutcomeKind.STOPPING)
    assert outcome.lost_steps == 0
    assert outcome.saved_step is not None
    assert outcome.saved_step > 20
    assert after.stopped_generation == generation
    resumed = job.coordinator.until(
        "a step on two", lambda o: o.generation == generation and o.phase is Phase.RUNNING
    )
    assert resumed.progress.step > outcome.saved_step
    times = resumed.times
    assert times.save_s is not None
    assert times.stop_s is not None
    assert times.sidecar_s is not None


def test_a_start_knows_which_process_of_its_container_has_hashed_the_checkpoint(job: Bed) -> None:
    def named(pid: int | None) -> list[bytes]:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        name = ENV_HASHED_GENERATION.encode() + b"="
        return [entry.removeprefix(name) for entry in variables if entry.startswith(name)]

    before = job.training(programs.STEPS)
    assert named(before.pid) == [], "it is the first process of its container"
    after = job.started(job.coordinator.want(Mode.RUN, *DEVICES[:2]))
    assert named(after.pid) == [str(before.generation).encode()]


def test_a_new_process_never_runs_beside_the_old_one(job: Bed) -> None:
    before = job.training(programs.STEPS, "save_s=0.5")
    generation = job.coordinator.want(Mode.RUN, *DEVICES[:1])
    after = job.started(generation)
    assert not proc.alive(before.pid or 0, before.start_time or 0)
    overlap = [
        o for o in job.coordinator.reports if o.pid == before.pid and o.devices == DEVICES[:1]
    ]
    assert overlap == []
    assert after.stopped_generation == generation


def test_a_program_that_ignores_term_is_refused_and_goes_on(job: Bed) -> None:
    before = job.training(programs.IGNORES)
    generation = job.coordinator.want(Mode.RUN, *DEVICES[:2], save_deadline_s=0.3)
    seen = job.coordinator.until(
        "refused", lambda o: o.outcome is not None and o.outcome.generation == generation
    )
    assert seen.outcome is not None
    assert seen.outcome.kind is OutcomeKind.REFUSED
    assert (seen.pid, seen.devices, seen.stopped_generation) == (before.pid, DEVICES, 2)
    again = job.coordinator.want(Mode.RUN, *DEVICES)
    seen = job.coordinator.until("withdrawn", lambda o: o.generation == again and o.pid is not None)
    assert job.alive()


def test_a_program_that_never_saves_is_killed_where_the_record_says_so(job: Bed) -> None:
    job.training(programs.STEPS, "deaf=1", "every=20")
    before = job.coordinator.until("steps", lambda o: o.progress.step > 45)
    generation = job.coordinator.want(
        Mode.RUN, *DEVICES[:2], save_deadline_s=0.3, on_save_timeout=OnSaveTimeout.KILL
    )
    seen = job.started(generation)
    outcome = seen.outcome
    assert outcome is not None
    assert outcome.kind is OutcomeKind.STOPPING
    assert outcome.saved_step is not None
    assert outcome.saved_step % 20 == 0
    assert 0 <= outcome.lost_steps < 200  # none, if it was killed right after it had saved
    assert outcome.saved_step + outcome.lost_steps >= before.progress.step
    assert not proc.alive(before.pid or 0, before.start_time or 0)


def test_a_hook_that_is_refused_withdraws_its_request_and_can_be_asked_again(job: Bed) -> None:
    before = job.training(programs.STEPS, "deaf=1")
    generation = job.coordinator.want(Mode.SAVE_AND_STOP, save_deadline_s=0.2)
    job.coordinator.until(
        "refused", lambda o: o.outcome is not None and o.outcome.generation == generation
    )
    eventually("the request is taken back", (job.folder.run / "keep-running").exists)
    assert job.alive()
    job.coordinator.want(Mode.RUN, *DEVICES)
    final = job.coordinator.want(
        Mode.SAVE_AND_STOP, save_deadline_s=0.2, on_save_timeout=OnSaveTimeout.KILL
    )
    seen = job.coordinator.until("stopped", lambda o: o.stopped_generation == final)
    assert (seen.pid, seen.phase) == (None, Phase.INITIALIZED)
    assert not proc.alive(before.pid or 0, before.start_time or 0)


def test_a_program_that_dies_while_saving_is_stopped_with_its_steps_lost(job: Bed) -> None:
    job.training(programs.STEPS, "dies=1", "every=20")
    job.coordinator.until("steps", lambda o: o.progress.step > 45)
    generation = job.coordinator.want(Mode.SAVE_AND_STOP)
    seen = job.coordinator.until("stopped", lambda o: o.stopped_generation == generation)
    assert seen.outcome is not None
    assert seen.outcome.kind is OutcomeKind.STOPPING
    assert seen.outcome.saved_step is not None
    assert seen.outcome.saved_step % 20 == 0
    assert seen.outcome.saved_step + seen.outcome.lost_steps == seen.progress.step
    assert seen.phase is Phase.INITIALIZED


def test_a_withdrawn_request_is_refused_and_nothing_is_stopped(job: Bed) -> None:
    before = job.training(programs.STEPS, "deaf=1")
    job.coordinator.want(Mode.RUN, *DEVICES[:2], save_deadline_s=60.0)
    job.coordinator.until("saving", lambda o: o.phase is Phase.SAVING)
    generation = job.coordinator.want(Mode.RUN, *DEVICES)
    seen = job.coordinator.until(
        "answered", lambda o: o.outcome is not None and o.outcome.generation == generation
    )
    assert seen.outcome is not None
    assert seen.outcome.kind is OutcomeKind.REFUSED
    assert seen.pid == before.pid
    outcomes = {o.outcome for o in job.coordinator.reports if o.outcome is not None}
    assert {o.generation for o in outcomes} == {1, 2, 4}


def test_a_crash_is_reported_with_the_end_of_its_log(job: Bed) -> None:
    job.initialised(programs.CRASHES)
    generation = job.coordinator.want(Mode.RUN, *DEVICES)
    seen = job.coordinator.until("crashed", lambda o: o.phase is Phase.CRASHED)
    assert (seen.generation, seen.exit_code) == (generation, 1)
    assert "no such layer" in (seen.error or "")
    assert job.status().running


def test_a_crashed_program_is_started_again_by_a_higher_generation_only(job: Bed) -> None:
    job.initialised(programs.CRASHES)
    job.coordinator.want(Mode.RUN, *DEVICES)
    first = job.coordinator.until("crashed", lambda o: o.phase is Phase.CRASHED)
    assert job.log().count("about to fail") == 1
    generation = job.coordinator.want(Mode.RUN, *DEVICES)
    second = job.coordinator.until(
        "crashed again", lambda o: o.phase is Phase.CRASHED and o.generation == generation
    )
    assert second.sequence > first.sequence
    assert second.process_restarts == 1
    assert job.log().count("about to fail") == 2


def test_a_program_that_cannot_be_executed_is_a_crash_that_says_why(job: Bed) -> None:
    job.initialised(programs.PLAIN)
    generation = job.coordinator.want(Mode.RUN, *DEVICES)
    job.started(generation)
    job.coordinator.want(Mode.SAVE_AND_STOP)
    job.coordinator.until("stopped", lambda o: o.stopped_generation == generation + 1)
    (job.path / "code").rename(job.path / "moved")
    job.coordinator.want(Mode.RUN, *DEVICES)
    seen = job.coordinator.until("crashed", lambda o: o.phase is Phase.CRASHED)
    assert seen.exit_code == 127
    assert "cannot be started" in (seen.error or "")


def test_a_program_that_ends_by_itself_is_finished_and_is_not_started_again(job: Bed) -> None:
    job.training(programs.STEPS, "total=30")
    seen = job.coordinator.until("finished", lambda o: o.phase is Phase.FINISHED)
    assert seen.exit_code == 0
    assert seen.progress.checkpoint_step == 30
    assert Phase.CRASHED not in {o.phase for o in job.coordinator.reports}
    generation = job.coordinator.want(Mode.RUN, *DEVICES[:2])
    seen = job.coordinator.until(
        "an outcome", lambda o: o.outcome is not None and o.outcome.generation == generation
    )
    assert seen.outcome is not None
    assert seen.outcome.complete
    assert seen.phase is Phase.FINISHED
    assert seen.pid is None


def test_the_seconds_of_a_start_outlive_the_release_of_a_program_that_has_ended(job: Bed) -> None:
    job.training(programs.STEPS, "total=30")
    ended = job.coordinator.until("finished", lambda o: o.phase is Phase.FINISHED)
    assert ended.times.sidecar_s is not None
    generation = job.coordinator.want(Mode.SAVE_AND_STOP)
    after = job.coordinator.until("released", lambda o: o.stopped_generation == generation)
    assert after.times == ended.times


@pytest.mark.parametrize("words", [(), ("clean",)], ids=["marked", "without environment"])
def test_a_double_fork_is_ended_with_its_tree(job: Bed, words: tuple[str, ...]) -> None:
    job.training(programs.DOUBLE_FORKS, *words)
    daemon = int((job.code / "daemon").read_text())
    assert proc.read(daemon) is not None
    generation = job.coordinator.want(Mode.SAVE_AND_STOP, kill_after_s=0.2)
    job.coordinator.until("stopped", lambda o: o.stopped_generation == generation)
    found = proc.read(daemon)
    assert found is None or found.zombie


def test_exit_saves_reports_and_ends_the_container(job: Bed) -> None:
    job.training(programs.STEPS)
    job.coordinator.until("steps", lambda o: o.progress.step > 5)
    generation = job.coordinator.want(Mode.EXIT)
    status = job.gone()
    assert (status.exit_code, job.left()) == (0, [])
    seen = job.coordinator.newest
    assert seen is not None
    assert seen.stopped_generation == generation
    assert seen.outcome is not None
    assert seen.outcome.saved_step is not None


def test_a_log_that_is_too_long_at_the_end_is_cut_to_its_bound(job: Bed) -> None:
    job.training(programs.PRINTS_AT_THE_END, str(limits.LOG_BYTES_MAX))
    job.remove(grace_s=10.0)
    path = job.folder.logs / "training.log"
    assert 0 < path.stat().st_blocks * 512 <= limits.LOG_BYTES_MAX + HOLE_BYTES
    assert path.stat().st_size > limits.LOG_BYTES_MAX
    assert job.log().endswith("end\n")


def test_removal_lets_training_save_first(job: Bed) -> None:
    job.training(programs.STEPS, "save_s=0.3")
    job.coordinator.until("steps", lambda o: o.progress.step > 5)
    job.remove(grace_s=10.0)
    assert not job.status().running
    assert [path.name for path in (job.path / "checkpoints").glob("step-*")] != []


def test_a_stale_generation_is_refused(job: Bed) -> None:
    before = job.training(programs.PLAIN)
    newest = job.coordinator.desired
    assert newest is not None
    stale = replace(newest, generation=1, mode=Mode.EXIT, devices=())
    reports = len(job.coordinator.reports)
    job.coordinator.set(stale)
    eventually("reports after it", lambda: len(job.coordinator.reports) > reports + 3)
    assert job.alive()
    assert job.process().pid == before.pid
    assert "generation 1 is refused" in job.log("agent.log")
