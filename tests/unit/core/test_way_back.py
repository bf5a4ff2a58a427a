"""R5: a program without reports of steps that fails soon after a reshape goes back to its size."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.limits import LOCAL, TRIAL_S
from reshape_controller.core.model import JobId, JobState, Stage
from reshape_sidecar.wire import Saves
from tests.support.world import World

A, B = JobId("a"), JobId("b")


def shrunk(*, retries: int = 0, rules: int = 3, steps: int = 0) -> World:
    """Four GPUs; job ``a`` trained on all of them, and a newcomer has taken two."""
    found = World(limits=replace(LOCAL, start_rules=rules)).boot(4)
    found.new_containers[A] = {"program": Saves.NEVER}
    found.running("a", 4, 1, 2, 4, may_restart=True, retries=retries)
    found.train("a", steps)
    found.submit("b", 2)
    found.plan(("b", 2), ("a", 2))
    assert (found.job("a").stage, len(found.job("a").gpus)) == (Stage.TRAINING, 2)
    return found


@pytest.mark.parametrize("code", [1, 137], ids=["an exception", "a signal"])
def test_it_returns_to_the_size_before_and_spends_no_retry(code: int) -> None:
    found = shrunk()
    found.wait(9.0)
    found.crash("a", code)
    a = found.job("a")
    assert (a.state, a.failures, a.struck, a.sizes) == (JobState.SUBMITTED, 0, (2,), (4,))
    assert a.failure is not None
    assert (a.failure.exit_code, a.failure.size) == (code, 2)
    assert a.reason == (
        "queued again for the 4 GPUs that it trained on: failed 9.0 s after its first start on "
        f"2 GPUs; last error: exit code {code}"
    )
    assert found.kinds[-3:].count("size-struck") == 1 or "size-struck" in found.kinds
    found.finish("b")
    found.plan(("a", 4))
    a = found.job("a")
    assert (a.stage, len(a.gpus), a.sizes, a.trial.back_to) == (Stage.TRAINING, 4, (1, 4), 0)
    assert found.replay() == found.log


def test_a_size_at_which_it_has_run_for_ten_minutes_is_not_struck() -> None:
    found = shrunk(retries=3)
    found.wait(TRIAL_S)
    found.crash("a")
    assert (found.job("a").stage, found.job("a").failures) == (Stage.TRAINING, 1)
    found.crash("a")  # soon after that start, at a size that is proven
    assert (found.job("a").failures, found.job("a").struck) == (2, ())


def test_a_size_stays_proven_over_a_pause_and_a_reshape() -> None:
    found = shrunk(retries=3)
    found.wait(TRIAL_S)
    found.event(ev.HaltRequested(A, "ann"))
    found.wait(120.0)
    found.event(ev.ResumeRequested(A, "ann"))
    found.plan(("a", 1))
    assert found.job("a").trial.proven == (2,)
    found.finish("b")
    found.plan(("a", 2))
    found.crash("a")
    assert (found.job("a").failures, found.job("a").struck) == (1, ())


def test_a_second_start_at_the_size_within_that_time_goes_back_as_well() -> None:
    found = shrunk()
    found.event(ev.HaltRequested(A, "ann"))
    found.wait(120.0)
    found.event(ev.ResumeRequested(A, "ann"))
    found.plan(("a", 2))
    found.crash("a")
    assert (found.job("a").failures, found.job("a").sizes) == (0, (4,))


def test_a_program_that_reports_its_steps_spends_a_retry_as_before() -> None:
    found = shrunk(retries=3, steps=10)
    found.crash("a")
    assert (found.job("a").failures, found.job("a").struck) == (1, ())


def test_a_crash_at_the_first_size_of_all_spends_a_retry() -> None:
    found = World().boot(4)
    found.running("a", 4, 2, 4, retries=1)
    found.crash("a")
    assert (found.job("a").failures, found.job("a").struck) == (1, ())


def test_the_size_to_which_it_went_back_has_no_way_back_of_its_own() -> None:
    found = shrunk(retries=1)
    found.crash("a")
    found.finish("b")
    found.plan(("a", 4))
    found.crash("a")
    assert (found.job("a").stage, found.job("a").failures) == (Stage.TRAINING, 1)
    found.crash("a")
    assert found.job("a").state is JobState.FAILED


def test_a_size_that_it_fails_to_start_at_sends_it_back_too() -> None:
    found = shrunk()
    found.crash("a")
    found.finish("b")
    found.plan(("a", 4))
    found.container("a").crashes = True
    found.submit("c", 3)
    found.plan(("c", 3), ("a", 1))
    a = found.job("a")
    assert (a.failures, sorted(a.struck), a.sizes) == (0, [1, 2], (4,))


def test_a_person_may_choose_another_size_than_that_before() -> None:
    found = shrunk()
    found.crash("a")
    found.event(ev.PinRequested(A, 1, "ann"))
    found.plan(("a", 1))
    assert (found.job("a").stage, len(found.job("a").gpus)) == (Stage.TRAINING, 1)


def test_a_pinned_size_that_is_struck_is_not_pinned_any_more() -> None:
    found = shrunk()
    found.event(ev.PinRequested(A, 2, "ann"))
    found.crash("a")
    assert (found.job("a").pinned, found.job("a").sizes) == (None, (4,))


def test_a_log_of_the_release_before_is_read_by_its_own_rules() -> None:
    found = shrunk(retries=3, rules=2)
    found.crash("a")
    a = found.job("a")
    assert (a.stage, a.failures, a.struck, a.trial.proven) == (Stage.TRAINING, 1, (), ())


def test_a_refusal_by_reshape_is_final_and_spends_no_retry() -> None:
    found = World().boot(4)
    found.new_containers[A] = {"crashes": True, "exception": "LoopError", "refused": True}
    found.submit("a", 2, 4, retries=3)
    found.plan(("a", 4))
    a = found.job("a")
    assert (a.state, a.failures, found.kinds.count("launched")) == (JobState.FAILED, 0, 1)
    assert a.reason == "refused by Reshape on 4 GPUs: no such loader"
    assert a.failure is not None
    assert (a.failure.exception, a.failure.refused) == ("LoopError", True)


def test_a_refusal_in_training_is_final_too() -> None:
    found = World().boot(4)
    found.running("a", 4, 4, retries=3)
    found.container("a").exception, found.container("a").refused = "FitError", True
    found.crash("a")
    assert (found.job("a").state, found.job("a").failures) == (JobState.FAILED, 0)


def test_a_refusal_at_another_size_strikes_that_size_alone() -> None:
    found = World().boot(4)
    found.running("a", 4, 2, 4, retries=3)
    found.train("a", 10)
    found.container("a").crashes = True
    found.container("a").exception, found.container("a").refused = "BatchError", True
    found.submit("b", 2)
    found.plan(("b", 2), ("a", 2))
    a = found.job("a")
    assert (a.state, a.failures, a.struck, a.sizes) == (JobState.SUBMITTED, 0, (2,), (4,))
