"""R5: each start that follows a failure of the program spends one of its retries."""

from __future__ import annotations

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.limits import Limits
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
    found.wait(found.limits.first_step_s + 1)
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


def test_two_deaths_at_a_size_strike_it_if_the_job_has_trained_at_another() -> None:
    found = World().boot(4)
    found.running("a", 2, 2, 4, retries=5)
    found.container("a").seconds_per_step = 0.5
    found.train("a", 10)
    found.new_containers[A] = {"crashes": True, "code": KILLED}
    found.container("a").crashes, found.container("a").code = True, KILLED
    found.plan(("a", 4))
    assert (found.job("a").state, found.job("a").struck) == (JobState.SUBMITTED, ())
    found.wait(301.0)
    found.plan(("a", 4))
    a = found.job("a")
    assert (a.state, a.struck, a.failures) == (JobState.SUBMITTED, (4,), 2)
    found.new_containers[A] = {}
    found.wait(301.0)
    found.plan(("a", 2))
    assert found.job("a").stage is Stage.TRAINING
