"""A job leaves after ``max_run_s``, and one that does not get on is an alert or fails."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.limits import LOCAL, PROGRESS_ALERT_S, Limits
from reshape_controller.core.model import JobId, JobState, Mechanism, OnMaxRun, Stage
from reshape_sidecar.wire import Outcome, OutcomeKind, Saves
from tests.support.world import World

A = JobId("a")
HOUR = 3600.0


def training(limits: Limits = LOCAL, steps: int = 10, **fields: object) -> World:
    """Four GPUs, and job ``a`` trains on all of them."""
    found = World(limits=limits).boot(4)
    found.running("a", 4, 2, 4, **fields)
    if steps:
        found.train("a", steps)
    return found


def trains(found: World, seconds: float, steps: int = 1) -> None:
    """Let the job make ``steps`` steps a minute for a time."""
    for _ in range(int(seconds // 60)):
        if found.job("a").stage is not Stage.TRAINING:
            return
        found.train("a", steps)
        found.wait(60.0)


@pytest.mark.parametrize("mechanism", [Mechanism.SIDECAR, Mechanism.TERMINATE])
def test_a_job_is_saved_and_paused_once_it_has_had_gpus_for_its_longest_run(
    mechanism: Mechanism,
) -> None:
    found = World(mechanism=mechanism).boot(4)
    found.running("a", 4, 2, 4, max_run_s=2 * HOUR)
    trains(found, HOUR)
    assert found.job("a").stage is Stage.TRAINING
    trains(found, 2 * HOUR)
    a = found.job("a")
    assert (a.state, a.stage, a.failures, a.steps_lost) == (JobState.HALTED, Stage.NONE, 0, 0)
    assert a.reason == "paused: it has had GPUs for its max_run_s of 7200 s"
    assert [entry.at_s for entry in found.entries("run-over")] == [2 * HOUR]
    assert found.gpu_states() == ["idle"] * 4


def test_or_it_is_saved_and_fails() -> None:
    found = training(max_run_s=HOUR, on_max_run=OnMaxRun.FAIL)
    trains(found, 2 * HOUR)
    a = found.job("a")
    assert (a.state, a.failures, a.progress.checkpoint_step) == (
        JobState.FAILED,
        0,
        a.progress.step,
    )
    assert a.reason == "it has had GPUs for its max_run_s of 3600 s"
    assert found.kinds.count("failed") == 1
    assert A in found.engine.state.ended


def test_only_time_with_gpus_counts_and_a_resume_gives_as_much_again() -> None:
    found = training(max_run_s=2 * HOUR)
    trains(found, HOUR)
    found.event(ev.HaltRequested(A, "ann"))
    found.wait(10 * HOUR)
    found.event(ev.ResumeRequested(A, "ann"))
    assert found.job("a").ran_s == 0.0
    found.plan(("a", 2))
    trains(found, HOUR)
    found.event(ev.HostDrained(found.engine.state.gpus[found.job("a").gpus[0]].host, "op"))
    found.wait(10 * HOUR)
    found.event(ev.HostUndrained(next(iter(found.engine.state.hosts)), "op"))
    assert found.job("a").ran_s == pytest.approx(HOUR, abs=60.0)
    found.plan(("a", 2))
    trains(found, HOUR - 120.0)
    assert found.job("a").stage is Stage.TRAINING
    trains(found, 300.0)
    assert found.job("a").state is JobState.HALTED


def test_a_job_that_is_resumed_while_it_leaves_has_its_whole_run_before_it() -> None:
    found = training(max_run_s=HOUR)
    found.auto = False
    trains(found, HOUR + 60.0)
    assert found.job("a").stage is Stage.SAVING
    found.event(ev.ResumeRequested(A, "ann"))
    found.auto = True
    found.settle()
    a = found.job("a")
    assert a.state is JobState.SUBMITTED
    assert a.ran_s < 60.0


def test_a_start_that_prepares_when_the_run_is_over_leaves_at_once() -> None:
    found = World().boot(4)
    found.new_containers[A] = {"hangs": True}
    found.submit("a", 4, max_run_s=600.0)
    found.plan(("a", 4))
    found.wait(700.0)
    assert found.job("a").state is JobState.HALTED


def test_a_donor_whose_run_is_over_leaves_and_its_newcomer_waits_for_another_plan() -> None:
    found = training(max_run_s=HOUR)
    trains(found, HOUR - 60.0)
    found.wait(30.0)
    found.new_containers[JobId("b")] = {"slow_init": True}
    found.submit("b", 2)
    found.plan(("b", 2), ("a", 2))
    found.wait(40.0)
    assert found.job("b").stage is Stage.LAUNCHING
    assert found.job("a").state is JobState.HALTED
    assert found.job("b").hand_over is None
    assert found.gpu_states() == ["idle"] * 4


def test_a_job_that_refused_to_leave_is_asked_again() -> None:
    found = training(max_run_s=HOUR)
    found.container("a").saves = False
    trains(found, HOUR + 60.0)
    assert found.job("a").stage is Stage.SAVING
    found.save_deadline_passes("a")
    assert found.job("a").stage is Stage.TRAINING
    found.container("a").saves = True
    found.wait(130.0)
    assert found.job("a").state is JobState.HALTED


def test_a_program_that_cannot_save_leaves_and_its_loss_is_counted() -> None:
    found = World().boot(4)
    found.new_containers[A] = {"program": Saves.NEVER}
    found.running("a", 4, 4, max_run_s=HOUR)
    trains(found, HOUR + 60.0)
    a = found.job("a")
    assert (a.state, a.steps_lost) == (JobState.HALTED, 60)


def test_a_job_without_a_further_step_for_an_hour_is_an_alert_until_it_makes_one() -> None:
    found = training()
    trains(found, HOUR)
    found.wait(PROGRESS_ALERT_S + 60.0)
    a = found.job("a")
    assert (a.stage, a.late, a.reason) == (Stage.TRAINING, *["no training step for 1 h"] * 2)
    assert len(found.entries("late")) == 1
    found.wait(5 * HOUR)
    assert len(found.entries("late")) == 1
    found.train("a", 1)
    assert (found.job("a").late, found.job("a").reason) == ("", "")


def test_without_further_steps_for_its_bound_it_starts_again_from_its_checkpoint() -> None:
    found = training(progress_timeout_s=600.0, retries=1)
    found.container("a").saved_step = 10
    trains(found, 300.0)
    found.wait(700.0)
    a = found.job("a")
    assert (a.state, a.failures, a.steps_lost) == (JobState.SUBMITTED, 1, 5)
    assert a.reason == (
        "queued again: no further training step within its progress_timeout_s of 600 s"
    )
    found.wait(60.0)
    found.plan(("a", 4))
    found.container("a").step = 10
    trains(found, 1200.0)
    assert found.job("a").stage is Stage.TRAINING
    found.container("a").saved_step = found.container("a").step
    found.train("a", 1)
    found.wait(700.0)
    a = found.job("a")
    assert (a.state, a.failures, a.struck) == (JobState.HALTED, 2, ())
    assert "no retries left (retries: 1)" in a.reason


def test_a_program_that_reports_no_steps_is_judged_by_its_signs_of_work() -> None:
    found = training(progress_timeout_s=600.0, retries=0, steps=0)
    for silent_s in (0.0, 0.0, 300.0):
        found.container("a").silent_s = silent_s
        found.report(found.container("a"))
        found.wait(HOUR)
        assert found.job("a").stage is Stage.TRAINING
    found.container("a").silent_s = 605.0
    found.report(found.container("a"))
    found.wait(700.0)
    a = found.job("a")
    assert a.state is JobState.FAILED
    assert "no sign of work (no output, and less than 1 s of processor time a minute)" in a.reason


def test_a_sidecar_that_is_silent_or_of_the_release_before_says_nothing_of_progress() -> None:
    found = training(progress_timeout_s=600.0)
    found.event(ev.SideCarFellSilent(A, 1))
    found.wait(10 * HOUR)
    a = found.job("a")
    assert (a.stage, a.late) == (Stage.TRAINING, "")
    unseen = training(progress_timeout_s=600.0, steps=0)
    unseen.wait(10 * HOUR)
    assert (unseen.job("a").stage, unseen.job("a").late) == (Stage.TRAINING, "")


def test_a_step_in_a_gap_without_a_controller_is_progress() -> None:
    found = training(progress_timeout_s=600.0)
    found.now_s += 10 * HOUR
    found.auto = False
    found.event(ev.ControllerStarted(2, "test", found.mechanism, LOCAL))
    found.wait(60.0)
    assert found.job("a").stage is Stage.TRAINING
    found.auto = True
    found.train("a", 100)
    found.wait(300.0)
    assert (found.job("a").stage, found.job("a").late) == (Stage.TRAINING, "")


def test_a_gap_without_a_controller_is_no_time_with_gpus() -> None:
    found = training(max_run_s=2 * HOUR)
    trains(found, HOUR)
    found.now_s += 10 * HOUR
    found.event(ev.ControllerStarted(2, "test", found.mechanism, LOCAL))
    trains(found, HOUR - 120.0)
    assert found.job("a").stage is Stage.TRAINING
    trains(found, 300.0)
    assert found.job("a").state is JobState.HALTED


def test_a_job_that_completes_as_it_leaves_is_completed() -> None:
    found = training(max_run_s=HOUR, on_max_run=OnMaxRun.FAIL)
    found.auto = False
    trains(found, HOUR + 60.0)
    c, desired = found.container("a"), found.engine.desired(A)
    assert desired is not None
    c.generation = desired.generation
    c.outcome = Outcome(desired.generation, OutcomeKind.STOPPING, c.step, complete=True)
    found.report(c)
    assert found.job("a").state is JobState.COMPLETED


def test_a_log_of_the_release_before_has_no_bounds() -> None:
    found = training(replace(LOCAL, start_rules=3), max_run_s=60.0, progress_timeout_s=60.0)
    found.wait(10 * HOUR)
    assert (found.job("a").stage, found.job("a").look_at_s) == (Stage.TRAINING, None)


def test_the_log_of_a_bounded_run_replays_to_the_same_commands() -> None:
    found = training(max_run_s=3 * HOUR, progress_timeout_s=2 * HOUR, retries=5)
    found.wait(2 * HOUR + 60.0)
    found.wait(60.0)
    found.plan(("a", 4))
    trains(found, 2 * HOUR)
    assert found.job("a").state is JobState.HALTED
    assert found.replay() == found.log
