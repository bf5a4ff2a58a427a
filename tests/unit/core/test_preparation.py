"""The successor that a change waits for: asked for and given up without any effect on the rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core import invariants
from reshape_controller.core.commands import SetDesired
from reshape_controller.core.engine import Engine
from reshape_controller.core.knowledge import Learned
from reshape_controller.core.limits import KUBERNETES, LOCAL, PREPARE_FACTOR
from reshape_controller.core.model import (
    MIN_RUNTIME_S,
    DeadlineKind,
    HostId,
    JobId,
    JobState,
    Mechanism,
    Stage,
)
from reshape_controller.core.plan import Plan, Preemption, Target
from reshape_controller.core.state import State
from reshape_controller.core.states import PreemptionReason
from reshape_sidecar import codec
from reshape_sidecar.wire import Desired, PhaseTimes, Prepared, PrepareStage, StartKind
from tests.support.container import Knobs
from tests.support.world import World

CAN: Knobs = {"can_prepare": True, "slow_prepare": True}
"""A SideCar that begins to prepare; the test says when it is ready."""


def world(knobs: Knobs = CAN, mechanism: Mechanism = Mechanism.SIDECAR) -> World:
    """Job a trains on all four GPUs of a host."""
    found = World(mechanism=mechanism).boot(4)
    found.new_containers[JobId("a")] = knobs
    found.running("a", 4, 1, 2, 4)
    return found


def donating(knobs: Knobs = CAN, mechanism: Mechanism = Mechanism.SIDECAR) -> World:
    """Job a shall give two of its GPUs to b, which is initialised."""
    found = world(knobs, mechanism)
    found.submit("b", 2)
    found.plan(("b", 2), ("a", 2))
    return found


def growing(knobs: Knobs = CAN) -> World:
    """Job a trains on two of four GPUs and shall have all."""
    found = World().boot(4)
    found.new_containers[JobId("a")] = knobs
    found.running("a", 2, 1, 2, 4)
    found.plan(("a", 4))
    return found


def desired(found: World, job: str = "a") -> list[Desired]:
    """Desired states of a job, in the order in which the engine gave them."""
    texts = [text for entry in found.log for text in entry[3:] if '"type":"SetDesired"' in text]
    wishes = [codec.loads(SetDesired, text).desired for text in texts]
    return [wish for wish in wishes if wish.job == job]


def ready(found: World, stage: PrepareStage = PrepareStage.READY) -> None:
    """The SideCar of job a has prepared what it was asked for."""
    container = found.container("a")
    assert container.prepare is not None
    container.prepared = Prepared(container.prepare, stage)
    found.report(container)


@pytest.mark.parametrize("begin", [donating, growing])
def test_a_change_waits_for_its_successor_in_the_generation_that_trains(
    begin: Callable[[], World],
) -> None:
    found = begin()
    a, before = found.job("a"), desired(found)[-2]
    assert (a.stage, a.frozen) == (Stage.TRAINING, True)
    asked = desired(found)[-1]
    assert asked == replace(before, prepare=a.prepare)
    ready(found)
    a, asked = found.job("a"), desired(found)[-1]
    assert (a.stage, a.prepare, a.deadline) == (Stage.TRAINING, None, None)
    assert asked.generation == before.generation + 1
    assert (asked.prepare, len(asked.devices)) == (None, len(a.gpus))
    assert "shrink-asked" in found.kinds or "grow-asked" in found.kinds


def test_a_successor_is_prepared_for_exactly_the_gpus_of_the_request() -> None:
    for found in (donating(), growing()):
        wish = desired(found)[-1].prepare
        ready(found)
        assert desired(found)[-1].devices == wish


def test_it_is_prepared_while_the_newcomer_initialises() -> None:
    found = world()
    found.new_containers[JobId("b")] = {"slow_init": True}
    found.submit("b", 2)
    found.plan(("b", 2), ("a", 2))
    ready(found)
    assert found.job("a").stage is Stage.TRAINING, "the newcomer is not initialised yet (R2)"
    found.container("b").slow_init = False
    found.settle()
    assert len(found.job("b").gpus) == 2


def test_a_sidecar_that_cannot_prepare_is_asked_at_once() -> None:
    for begin in (donating, growing):
        found = begin({})
        assert found.job("a").change is None
        assert found.job("a").stage is Stage.TRAINING
        assert all(each.prepare is None for each in desired(found))


def test_nothing_is_prepared_for_a_container_that_ends() -> None:
    found = donating(CAN, Mechanism.TERMINATE)
    assert len(found.job("b").gpus) == 2
    assert all(each.prepare is None for each in desired(found))


@pytest.mark.parametrize("begin", [donating, growing])
def test_a_change_goes_on_without_a_successor_that_is_late(begin: Callable[[], World]) -> None:
    found = begin()
    found.wait(found.limits.prepare_s - 1.0)
    assert desired(found)[-1].prepare is not None
    found.wait(2.0)
    a = found.job("a")
    assert (a.stage, a.prepare) == (Stage.TRAINING, None)
    assert desired(found)[-1].prepare is None
    assert (a.process_restarts, a.failures, a.start_failures) == (1, 0, ())
    assert not {"failure", "start-failed"} & set(found.kinds)


@pytest.mark.parametrize(
    "stage", [PrepareStage.FAILED, PrepareStage.EFFECT_BARRIER, PrepareStage.DEVICE_BARRIER]
)
def test_a_successor_that_comes_no_further_is_not_awaited_and_no_failure(
    stage: PrepareStage,
) -> None:
    found = donating()
    ready(found, stage)
    a = found.job("a")
    assert (a.failures, a.start_failures, a.failure) == (0, (), None)
    assert len(a.gpus) == len(found.job("b").gpus) == 2


def test_a_start_that_fell_back_is_no_failed_start() -> None:
    found = donating()
    found.container("a").times = PhaseTimes(
        0.1, first_step_s=6.0, how=StartKind.COLD, fallback="its successor ended"
    )
    ready(found, PrepareStage.FAILED)
    a = found.job("a")
    assert (a.failures, a.start_failures, a.failed_starts, a.struck) == (0, (), (), ())
    assert not {"failure", "start-failed"} & set(found.kinds)


def test_a_successor_for_other_devices_is_awaited_still() -> None:
    found = donating()
    container = found.container("a")
    container.prepared = Prepared(("GPU-0-3",), PrepareStage.READY)
    found.report(container)
    assert found.job("a").prepare is not None
    assert len(found.job("a").gpus) == 4


def test_the_wait_is_no_longer_than_the_learned_time_allows_and_grows_if_it_is_late() -> None:
    found = World().boot(4)
    found.new_containers[JobId("a")] = CAN
    found.running("a", 2, 1, 2, 4, job_type="kind")
    state = found.engine.state
    state.profiles = state.profiles.with_voice("", Learned("kind", prepare_s=4.0))
    found.plan(("a", 4))
    deadline = found.job("a").deadline
    assert deadline is not None
    assert (deadline.kind, deadline.length_s) == (DeadlineKind.PREPARE, 4.0 * PREPARE_FACTOR)
    found.wait(4.0 * PREPARE_FACTOR + 1.0)
    assert len(found.job("a").gpus) == 4
    later_s = found.engine.state.profiles.learned_of("kind").prepare_s
    assert later_s is not None
    assert 4.0 < later_s < 4.0 * PREPARE_FACTOR


def test_a_used_successor_teaches_how_long_it_takes() -> None:
    found = growing()
    found.container("a").times = PhaseTimes(
        0.1, first_step_s=0.2, how=StartKind.SUCCESSOR, prepare_s=7.0
    )
    ready(found)
    assert found.engine.state.profiles.learned_of(None).prepare_s == 7.0


def test_the_limits_are_those_of_the_document() -> None:
    assert (LOCAL.prepare_s, KUBERNETES.prepare_s) == (60.0, 300.0)


def given_up(found: World) -> None:
    """Job a trains on as before, and its SideCar prepares nothing."""
    a, newest = found.job("a"), desired(found)[-1]
    assert (a.stage, a.prepare, a.deadline, a.frozen) == (Stage.TRAINING, None, None, False)
    assert newest.prepare is None
    assert newest.generation == a.generation == found.container("a").running_generation
    assert found.container("a").prepared is None
    invariants.check(found.engine.state)


def test_a_plan_that_is_given_up_drops_its_successor() -> None:
    found = donating()
    found.event(ev.CancelRequested(JobId("b"), "ann"))
    given_up(found)
    assert found.gpu_states() == ["in use"] * 4


def test_a_donor_that_idle_gpus_spare_drops_its_successor() -> None:
    found = World().boot(8)
    found.new_containers[JobId("a")] = CAN
    found.running("a", 4, 1, 2, 4)
    found.running("c", 4, 4)
    found.submit("b", 2)
    found.plan(("b", 2), ("a", 2))
    found.finish("c")
    given_up(found)
    assert len(found.job("b").gpus) == 2


def test_a_growing_job_that_must_not_grow_any_more_drops_its_successor() -> None:
    found = growing()
    found.event(ev.PinRequested(JobId("a"), 2, "ann"))
    ready(found)
    given_up(found)
    assert found.gpu_states() == ["in use", "in use", "idle", "idle"]


def test_an_unreachable_donor_keeps_its_gpus() -> None:
    found = donating()
    found.container("a").reachable = False
    found.event(ev.SideCarFellSilent(JobId("a"), 1))
    assert found.job("a").prepare is None
    assert len(found.job("a").gpus) == 4


def test_a_donor_that_completes_meanwhile_still_gives_its_gpus() -> None:
    found = donating()
    found.finish("a")
    assert found.job("a").state is JobState.COMPLETED
    assert len(found.job("b").gpus) == 2


@pytest.mark.parametrize("request_of", [ev.CancelRequested, ev.HaltRequested])
@pytest.mark.parametrize("begin", [donating, growing])
def test_a_job_that_a_person_stops_meanwhile_stops(
    begin: Callable[[], World], request_of: type[ev.CancelRequested]
) -> None:
    found = begin()
    found.event(request_of(JobId("a"), "ann"))
    found.settle()
    a = found.job("a")
    assert (a.prepare, a.gpus) == (None, ())
    assert a.state in (JobState.CANCELLED, JobState.HALTED)


@pytest.mark.parametrize("begin", [donating, growing])
def test_a_crash_meanwhile_is_counted_once_and_the_hand_over_ends_or_goes_on(
    begin: Callable[[], World],
) -> None:
    found = begin()
    found.crash("a")
    a = found.job("a")
    assert (a.failures, a.prepare, a.stage) == (1, None, Stage.TRAINING)
    invariants.check(found.engine.state)


@pytest.mark.parametrize("begin", [donating, growing])
def test_a_restarted_controller_repeats_what_to_prepare_and_waits_again(
    begin: Callable[[], World],
) -> None:
    found = begin()
    wish = found.job("a").prepare
    found.now_s += 50.0
    found.engine = Engine(State.load(found.engine.state.dump()))
    found.auto = False
    found.event(ev.ControllerStarted(2, "test", Mechanism.SIDECAR, found.limits))
    (repeated,) = [
        each.desired
        for each in found.engine.outstanding()
        if isinstance(each, SetDesired) and each.desired.job == "a"
    ]
    assert repeated.prepare == wish
    deadline = found.job("a").deadline
    assert deadline is not None
    assert deadline.at_s == found.now_s + found.limits.prepare_s
    ready(found)
    assert found.job("a").stage is not Stage.SAVING or begin is growing, "b has not answered (R6)"
    found.auto = True
    found.settle()
    assert len(found.job("a").gpus) == (2 if begin is donating else 4)


def test_a_receiver_with_donors_waits_for_them_and_then_for_its_own_successor() -> None:
    found = World().boot(4)
    found.new_containers[JobId("a")] = CAN
    found.running("a", 2, 2, 3)
    found.running("b", 2, 1, 2)
    found.plan(("a", 3), ("b", 1))
    assert (len(found.job("a").gpus), len(found.job("b").gpus)) == (2, 1)
    assert found.job("a").stage is Stage.TRAINING
    ready(found)
    assert len(found.job("a").gpus) == 3
    assert found.job("a").hand_over is None


def test_a_job_that_is_preempted_prepares_nothing() -> None:
    found = world()
    found.submit("b", 4, priority=1)
    found.wait(MIN_RUNTIME_S + 1.0)
    target = (Target(JobId("b"), 4, HostId("host-0")), Target(JobId("a"), 0, HostId("host-0")))
    found.apply(Plan(target, "test", preemption=Preemption(PreemptionReason.PRIORITY)))
    assert len(found.job("b").gpus) == 4
    assert all(each.prepare is None for each in desired(found))


def test_the_speed_while_a_successor_is_prepared_teaches_nothing() -> None:
    found = donating()
    before = found.job("a").measured
    found.container("a").seconds_per_step = 9.0
    found.train("a", 10)
    assert found.job("a").progress.seconds_per_step == 9.0
    assert found.job("a").measured == before
    found.event(ev.CancelRequested(JobId("b"), "ann"))
    found.train("a", 10)
    assert found.job("a").measured != before
