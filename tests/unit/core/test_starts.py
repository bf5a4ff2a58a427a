"""R5: each start that follows a failure of the program spends one of its retries."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.limits import LOCAL, Limits
from reshape_controller.core.model import HostId, JobId, JobState, Stage
from reshape_sidecar.wire import Phase
from tests.support.world import HOST, World

A = JobId("a")
KILLED = 137


def crashing(*sizes: int, retries: int, code: int = 1, exception: str | None = None) -> World:
    """Four GPUs, and job ``a``, whose every start fails."""
    found = World().boot(4)
    found.new_containers[A] = {"crashes": True, "code": code}
    if exception is not None:
        found.new_containers[A]["exception"] = exception
    found.submit("a", *sizes, retries=retries)
    return found


def starts_until_it_ends(found: World, *sizes: int, most: int = 20) -> int:
    """Start it at each of ``sizes``, then at the smallest that is left; return how often it ran."""
    for number in range(most):
        job = found.job("a")
        if job.state is not JobState.SUBMITTED:
            break
        left = [size for size in sizes[number:] if size in job.sizes] or [job.sizes[0]]
        found.wait(400.0)
        found.plan(("a", left[0]))
    return found.kinds.count("start-failed")


@pytest.mark.parametrize(("retries", "runs"), [(0, 1), (1, 2), (2, 3), (9, 3)])
def test_a_program_that_never_starts_runs_once_more_than_its_retries_at_most(
    retries: int, runs: int
) -> None:
    found = crashing(1, 2, 4, retries=retries, code=3)
    assert starts_until_it_ends(found, 4, 2, 1) == runs
    a = found.job("a")
    assert (a.state, a.failures) == (JobState.FAILED, runs)
    assert a.failure is not None
    assert (a.failure.exit_code, a.failure.cause) == (3, "exit code 3")


def test_the_same_exception_at_a_second_size_ends_a_job_that_made_no_step() -> None:
    found = crashing(2, 4, retries=50, exception="KeyError")
    starts_until_it_ends(found, 4, 2)
    a = found.job("a")
    assert a.state is JobState.FAILED
    assert a.reason == "the same failure (KeyError) on 4 and 2 GPUs: exit code 1"
    assert a.failure is not None
    assert (a.failure.exception, a.failure.size) == ("KeyError", 2)


def test_another_exception_at_a_second_size_does_not() -> None:
    found = crashing(2, 4, retries=50, exception="KeyError")
    found.plan(("a", 4))
    assert found.job("a").struck == (4,)
    found.new_containers[A]["exception"] = "OSError"
    found.wait(400.0)
    found.plan(("a", 2))
    assert found.job("a").reason == "failed to start on 4 and 2 GPUs; last error: exit code 1"


def test_a_job_that_has_made_a_step_is_paused_with_its_checkpoint_and_the_error() -> None:
    found = World().boot(4)
    found.running("a", 4, 2, 4, retries=50)
    found.train("a", 10)
    found.container("a").saved_step = 10
    found.new_containers[A] = {"crashes": True}
    found.container("a").crashes = True
    found.crash("a")
    starts_until_it_ends(found, 2)
    a = found.job("a")
    assert a.state is JobState.HALTED
    assert a.reason == (
        "paused, checkpoint kept: the same failure (exit code 1) on 4 and 2 GPUs: exit code 1"
    )
    found.new_containers[A] = {}
    found.event(ev.ResumeRequested(A, "ann"))
    found.plan(("a", 4))
    assert (found.job("a").stage, found.job("a").failed_starts) == (Stage.TRAINING, ())


def test_a_job_without_a_retry_left_that_has_made_a_step_is_paused_and_can_be_resumed() -> None:
    found = World().boot(4)
    found.running("a", 4, 4, retries=0)
    found.train("a", 10)
    found.event(ev.HaltRequested(A, "ann"))
    found.new_containers[A] = {"crashes": True}
    found.event(ev.ResumeRequested(A, "ann"))
    found.plan(("a", 4))
    assert found.job("a").state is JobState.HALTED
    assert "no retries left (retries: 0)" in found.job("a").reason
    found.new_containers[A] = {}
    found.event(ev.ResumeRequested(A, "ann"))
    found.plan(("a", 4))
    assert (found.job("a").stage, found.job("a").failures) == (Stage.TRAINING, 0)


@pytest.mark.parametrize("exception", [None, "MemoryError"])
def test_a_death_is_tried_again_after_a_back_off_as_often_as_there_are_retries(
    exception: str | None,
) -> None:
    code = 1 if exception else KILLED
    found = crashing(2, 4, retries=5, code=code, exception=exception)
    for failures in range(1, 6):
        found.plan(("a", 4))
        a = found.job("a")
        assert (a.state, a.failures, a.struck) == (JobState.SUBMITTED, failures, ())
        assert a.deadline is not None
        assert a.deadline.length_s == min(300.0, 2.0**failures)
        found.wait(301.0)
    found.plan(("a", 4))
    assert (found.job("a").state, found.job("a").failures) == (JobState.FAILED, 6)


def test_a_second_death_in_training_backs_off_and_the_first_starts_again_at_once() -> None:
    found = World().boot(4)
    found.running("a", 4, 4, retries=9)
    found.crash("a", KILLED)
    assert (found.job("a").stage, found.job("a").attempt) == (Stage.TRAINING, 1)
    found.crash("a", KILLED)
    a = found.job("a")
    assert (a.state, a.stage, a.failures) == (JobState.SUBMITTED, Stage.NONE, 2)
    assert a.failure is not None
    assert a.failure.signal == "SIGKILL"


def test_a_crash_in_training_spends_one_retry_each_time() -> None:
    found = World().boot(4)
    found.running("a", 4, 4, retries=2)
    for failures in (1, 2):
        found.crash("a")
        assert (found.job("a").stage, found.job("a").failures) == (Stage.TRAINING, failures)
    found.crash("a")
    assert (found.job("a").state, found.job("a").failures) == (JobState.FAILED, 3)


def test_a_start_that_fails_after_a_crash_spends_one_more() -> None:
    found = World().boot(4)
    found.running("a", 4, 4, retries=2)
    found.container("a").crashes = True
    found.crash("a")
    assert (found.job("a").state, found.job("a").failures) == (JobState.FAILED, 3)


def test_starts_that_follow_no_failure_of_the_program_spend_none() -> None:
    found = World().boot(4, hosts=2)
    found.running("a", 4, 1, 2, 4, retries=0)
    found.train("a", 5)
    found.submit("b", 2)
    found.plan(("b", 2), ("a", 2))  # a reshape
    found.event(ev.HaltRequested(A, "ann"))
    found.event(ev.ResumeRequested(A, "ann"))
    found.plan(("a", 2))  # a pause
    found.event(ev.HostDrained(HOST, "ann"))
    found.plan(("a", 2), host=HostId("host-1"))  # a drain
    found.kill_container("a", code=0)
    found.wait(3.0)
    found.plan(("a", 4), host=HostId("host-1"))  # an evicted pod
    found.event(ev.HostUndrained(HOST, "ann"))
    found.event(ev.HostFellSilent(HostId("host-1"), "no answer"))
    found.plan(("a", 1))  # a lost host
    a = found.job("a")
    assert (a.stage, a.attempt, a.failures) == (Stage.TRAINING, 5, 0)


def test_a_start_that_hangs_spends_a_retry() -> None:
    found = World().boot(4)
    found.submit("a", 4, retries=0)
    found.auto = False
    found.plan(("a", 4))
    found.converge(found.container("a"))
    c = found.container("a")
    c.generation, c.phase, c.running = found.job("a").generation, Phase.STARTING, ()
    found.report(c)
    found.wait(found.limits.start_timeout_s + 1)
    assert (found.job("a").state, found.job("a").failures) == (JobState.FAILED, 1)


def test_a_log_of_the_release_before_is_read_by_its_own_rules() -> None:
    found = World(limits=Limits()).boot(4)
    found.new_containers[A] = {"crashes": True}
    found.submit("a", 2, 4, retries=0)
    found.plan(("a", 4))
    assert (found.job("a").struck, found.job("a").failures) == ((4,), 0)
    found.plan(("a", 2))
    a = found.job("a")
    assert (a.state, a.reason) == (
        JobState.FAILED,
        "failed to start on 4 and 2 GPUs; last error: exit code 1",
    )
    assert a.failure is None


BEFORE = replace(LOCAL, start_rules=3)
"""Limits of the release before: a start is bounded by its age."""


def grown(*sizes: int, retries: int = 0, limits: Limits = LOCAL, **fields: object) -> World:
    """Four GPUs; job ``a`` trains on two, and its next starts fail."""
    found = World(limits=limits).boot(4)
    found.running("a", 2, *sizes, retries=retries, **fields)
    found.train("a", 10)
    fail(found)
    return found


def fail(found: World, code: int = 1, exception: str = "ValueError") -> None:
    """Let the starts of job ``a`` fail."""
    found.new_containers[A] = {"crashes": True, "code": code, "exception": exception}
    c = found.container("a")
    c.crashes, c.code, c.exception = True, code, exception


def start_hangs(found: World, size: int) -> None:
    """Start job ``a`` on ``size`` GPUs; it makes no first step until the deadline has passed."""
    found.new_containers[A] = {"hangs": True}
    if found.job("a").stage is Stage.TRAINING:
        found.container("a").hangs = True
    found.plan(("a", size))
    found.wait(found.limits.first_step_s + 1)
    found.settle()


def repair(found: World) -> None:
    """Let the starts of job ``a`` succeed."""
    found.new_containers[A] = {}


@pytest.mark.parametrize(("code", "exception"), [(1, "ValueError"), (1, "MemoryError"), (137, "")])
def test_a_job_that_cannot_start_at_a_new_size_goes_back_and_spends_no_retry(
    code: int, exception: str
) -> None:
    found = grown(2, 4)
    fail(found, code, exception)
    found.plan(("a", 4))
    a = found.job("a")
    assert (a.state, a.struck, a.failures) == (JobState.SUBMITTED, (4,), 0)
    assert a.reason == "queued again: failed to start on 4 GPUs; last error: exit code " + str(code)
    assert found.kinds.count("start-failed") == 2
    repair(found)
    found.plan(("a", 2))
    assert found.job("a").stage is Stage.TRAINING


def test_in_a_log_of_the_release_before_the_second_start_that_hangs_strikes_the_size() -> None:
    found = grown(2, 4, limits=BEFORE)
    for number in (1, 2):
        start_hangs(found, 4)
        assert found.job("a").struck == ((4,) if number == 2 else ())
    assert (found.job("a").state, found.job("a").failures) == (JobState.SUBMITTED, 0)


def test_failed_starts_at_a_size_count_although_the_job_trains_at_another_in_between() -> None:
    found = grown(2, 4, limits=BEFORE)
    start_hangs(found, 4)
    repair(found)
    found.plan(("a", 2))
    assert (found.job("a").stage, found.job("a").start_failures) == (Stage.TRAINING, (4,))
    fail(found)
    found.plan(("a", 4))
    assert found.job("a").struck == (4,)


def test_a_fixed_count_at_which_the_job_does_not_start_is_given_up() -> None:
    found = grown(2, 4)
    found.event(ev.PinRequested(A, 4, "ann"))
    found.plan(("a", 4))
    a = found.job("a")
    assert (a.state, a.pinned, a.sizes) == (JobState.SUBMITTED, None, (2,))
    assert any("its GPU count is not fixed any more" in text for text in found.texts)


def test_a_donor_that_cannot_start_with_less_waits_for_its_size_before() -> None:
    found = World().boot(4)
    found.running("a", 4, 1, 2, 4, retries=0)
    found.train("a", 10)
    fail(found)
    found.submit("b", 2)
    found.plan(("b", 2), ("a", 2))
    assert (found.job("a").state, found.job("a").struck) == (JobState.SUBMITTED, (2,))
    assert found.job("b").stage is Stage.TRAINING
    found.plan(("a", 1))
    assert (found.job("a").state, found.job("a").sizes) == (JobState.SUBMITTED, (4,))
    repair(found)
    found.finish("b")
    found.plan(("a", 4))
    assert (found.job("a").stage, found.job("a").failures) == (Stage.TRAINING, 0)


def test_a_program_that_starts_at_no_size_any_more_is_paused_for_the_error() -> None:
    found = grown(2, 4)
    found.plan(("a", 4))
    found.plan(("a", 2))
    a = found.job("a")
    assert a.state is JobState.HALTED
    assert a.reason.startswith("paused, checkpoint kept: the same failure (ValueError) on 4 and 2")


def test_two_deaths_at_a_size_strike_it_if_the_job_has_trained_at_another() -> None:
    found = World().boot(4)
    found.running("a", 2, 2, 4, retries=5)
    found.container("a").seconds_per_step = 0.5
    found.train("a", 10)
    found.plan(("a", 4))
    fail(found, KILLED, "")
    found.crash("a", KILLED)
    found.wait(301.0)
    found.plan(("a", 4))
    a = found.job("a")
    assert (a.state, a.struck, a.failures) == (JobState.SUBMITTED, (4,), 3)
    repair(found)
    found.wait(301.0)
    found.plan(("a", 2))
    assert found.job("a").stage is Stage.TRAINING


def saved(retries: int, *, limits: Limits | None = None) -> World:
    """Job ``a`` trains on four GPUs, and has a checkpoint."""
    found = World(limits=limits).boot(4) if limits is not None else World().boot(4)
    found.running("a", 4, 4, retries=retries)
    found.container("a").saved_step = 10
    found.train("a", 12)
    return found


def test_a_crash_in_training_without_a_retry_left_pauses_a_job_that_has_a_checkpoint() -> None:
    found = saved(retries=0)
    found.crash("a")
    a = found.job("a")
    assert (a.state, a.gpus, a.steps_lost) == (JobState.HALTED, (), 2)
    assert a.reason == (
        "paused, checkpoint kept: failure 1, no retries left (retries: 0); last error: exit code 1"
    )
    assert set(found.gpu_states()) == {"idle"}
    found.event(ev.ResumeRequested(A, "ann"))
    found.plan(("a", 4))
    assert (found.job("a").stage, found.job("a").failures) == (Stage.TRAINING, 0)


def test_so_does_the_end_of_its_container() -> None:
    found = saved(retries=0)
    found.kill_container("a")
    assert found.job("a").state is JobState.HALTED
    assert "no retries left (retries: 0)" in found.job("a").reason


def test_a_container_that_cannot_be_launched_any_more_pauses_a_job_that_has_a_checkpoint() -> None:
    found = saved(retries=0)
    found.event(ev.HaltRequested(A, "ann"))
    found.new_containers[A] = {"slow_init": True}
    found.event(ev.ResumeRequested(A, "ann"))
    found.plan(("a", 4))
    found.wait(found.limits.early_init_s + 1)
    assert found.job("a").state is JobState.HALTED
    assert found.job("a").reason.startswith("paused, checkpoint kept: failure 1, no retries left")


def test_a_log_of_the_release_before_ends_such_a_job() -> None:
    found = saved(retries=0, limits=Limits())
    found.crash("a")
    assert found.job("a").state is JobState.FAILED
