"""Plans that send running jobs back to the queue for another: what they may do, what follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.limits import LOCAL
from reshape_controller.core.model import ChangeKind, JobId, JobState, Mechanism, ReshapeIf, Stage
from reshape_controller.core.states import PreemptionReason
from reshape_sidecar.wire import Saves
from tests.support.world import World

MECHANISMS = [Mechanism.SIDECAR, Mechanism.TERMINATE]
PRIORITY, OVERDUE, RATIO = PreemptionReason


def two_jobs(
    mechanism: Mechanism = Mechanism.SIDECAR,
    *,
    run_s: float = 300.0,
    priority: int = 100,
    sizes: tuple[int, ...] = (2,),
    **victim: object,
) -> World:
    """``a`` has trained on two of two GPUs for ``run_s``; ``b`` waits for two."""
    world = World(mechanism=mechanism).boot(2)
    world.running("a", 2, *sizes, **victim)
    world.train("a", 10)
    world.wait(run_s)
    world.submit("b", 2, priority=priority)
    return world


def preempt(world: World, reason: PreemptionReason | None = PRIORITY) -> None:
    world.plan(("b", 2), ("a", 0), preempts=reason)


def asked_to_leave() -> World:
    """``a`` was asked to leave for ``b``, and saves."""
    world = two_jobs()
    world.container("a").saves = False
    preempt(world)
    assert world.job("a").stage is Stage.SAVING
    return world


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_job_of_lower_priority_saves_leaves_and_is_queued_in_its_old_place(
    mechanism: Mechanism,
) -> None:
    world = two_jobs(mechanism)
    place = world.job("a").place
    preempt(world)
    a, b = world.job("a"), world.job("b")
    assert (b.stage, len(b.gpus)) == (Stage.TRAINING, 2)
    assert (a.state, a.stage, a.place) == (JobState.SUBMITTED, Stage.NONE, place)
    assert (a.steps_lost, a.progress.checkpoint_step, a.failures) == (0, 10, 0)
    assert (a.preempted_by, a.preempted_at_s, a.preemptions) == ("b", world.now_s, 1)
    assert a.reason == "preempted for b, which has priority 100"
    assert "preempted" in world.kinds
    assert world.replay() == world.log


def test_a_preempted_job_goes_on_from_its_checkpoint_once_there_are_gpus() -> None:
    world = two_jobs()
    preempt(world)
    world.finish("b")
    world.settle()
    world.now_s += 50.0
    world.plan(("a", 2))
    a = world.job("a")
    assert (a.stage, a.attempt, a.runs_since_s) == (Stage.TRAINING, 2, world.now_s)


def test_the_wait_of_a_preempted_job_counts_from_its_preemption() -> None:
    world = two_jobs()
    preempt(world)
    view = next(job for job in world.engine.snapshot().queued if job.id == "a")
    assert view.waits_since_s == view.preempted_at_s == 300.0
    assert view.submitted_at_s == 0.0


@pytest.mark.parametrize(
    ("victim", "reason", "rule"),
    [
        ({}, None, "a: the plan gives no reason to preempt it"),
        ({"run_s": 299.0}, PRIORITY, "a: has run 299 s of its min_runtime_s of 300 s"),
        ({"min_runtime_s": 900.0}, PRIORITY, "a: has run 300 s of its min_runtime_s of 900 s"),
        ({"priority": 0}, PRIORITY, "b has priority 0, a 0: only a higher one preempts"),
        ({"priority": -1}, OVERDUE, "b has priority -1, a 0: only a higher one preempts"),
        ({"priority": 0}, OVERDUE, "a: has run 300 s of the 1800 s before a job of equal"),
        ({"reshape_if": ReshapeIf.EXACT}, PRIORITY, "a: its trajectory is unknown"),
    ],
)
def test_a_preemption_that_breaks_a_rule_is_refused_by_its_name(
    victim: dict[str, object], reason: PreemptionReason | None, rule: str
) -> None:
    world = two_jobs(**victim)  # type: ignore[arg-type]
    before = world.engine.state.dump()[1:]
    with pytest.raises(PlanRejected, match=rule):
        preempt(world, reason)
    assert world.engine.state.dump()[1:] == before


@pytest.mark.parametrize("program", [Saves.NEVER, Saves.SIGTERM])
@pytest.mark.parametrize("may_restart", [True, False])
def test_a_job_that_cannot_save_is_not_preempted(program: Saves, *, may_restart: bool) -> None:
    world = World().boot(2)
    world.new_containers[JobId("a")] = {"program": program}
    world.running("a", 2, 2, may_restart=may_restart)
    world.wait(300.0)
    world.submit("b", 2, priority=100)
    with pytest.raises(PlanRejected, match=r"a: it (cannot save|handles SIGTERM itself)"):
        preempt(world)


def test_a_plan_that_could_shrink_its_donors_preempts_none() -> None:
    world = World().boot(4)
    for name in ("a", "c"):
        world.running(name, 2, 1, 2)
    world.wait(300.0)
    world.submit("b", 2, priority=100)
    with pytest.raises(
        PlanRejected, match="b: it can start if a, c give GPUs and train on, so none"
    ):
        world.plan(("b", 2), ("a", 1), ("c", 0), preempts=PRIORITY)
    with pytest.raises(PlanRejected, match="b: it can start if a, c give"):
        world.plan(("b", 2), ("a", 0), ("c", 0), preempts=PRIORITY)
    world.plan(("b", 2), ("c", 0), preempts=PRIORITY)  # c alone can give one GPU by a shrink
    assert world.job("c").preemptions == 1


def test_shrinks_and_preemptions_serve_one_newcomer_together() -> None:
    world = World().boot(4)
    world.running("a", 2, 1, 2)
    world.running("c", 2, 2)
    world.wait(300.0)
    world.submit("b", 3, priority=100)
    world.plan(("b", 3), ("a", 1), ("c", 0), preempts=PRIORITY)
    assert [len(world.job(name).gpus) for name in "abc"] == [1, 3, 0]


@pytest.mark.parametrize("receiver", ["running", "none"])
def test_a_job_is_preempted_for_a_queued_job_only(receiver: str) -> None:
    world = World().boot(4)
    world.running("a", 2, 2)
    world.running("c", 2, 2, 4, priority=100)
    world.wait(300.0)
    targets = [("c", 4), ("a", 0)] if receiver == "running" else [("a", 0)]
    with pytest.raises(PlanRejected, match="a: only a queued job can preempt it"):
        world.plan(*targets, preempts=PRIORITY)


def test_size_0_is_of_a_running_job_on_its_own_host_alone() -> None:
    world = two_jobs()
    with pytest.raises(PlanRejected, match="b: 0 is not in its GPU counts"):
        world.plan(("b", 0), preempts=PRIORITY)
    world = World().boot(2, hosts=2)
    world.running("a", 2, 2)
    with pytest.raises(PlanRejected, match="a: 0 is not in its GPU counts"):
        world.plan(("a", 0), host="host-1", preempts=PRIORITY)


def test_at_equal_priority_a_job_is_preempted_once_in_an_hour() -> None:
    world = two_jobs(run_s=1800.0, priority=0)
    preempt(world, RATIO)
    world.finish("b")
    world.settle()
    world.plan(("a", 2))
    world.wait(1800.0)
    world.submit("b", 2)
    with pytest.raises(PlanRejected, match=r"a: was preempted 1800 s ago; at equal priority once"):
        preempt(world, OVERDUE)
    world.wait(1800.0)
    preempt(world, OVERDUE)
    assert world.job("a").preemptions == 2


def test_a_higher_priority_preempts_again_within_the_hour() -> None:
    world = two_jobs()
    preempt(world)
    world.finish("b")
    world.settle()
    world.plan(("a", 2))
    world.wait(300.0)
    world.submit("b", 2, priority=1)
    preempt(world)
    assert world.job("a").preemptions == 2


def test_a_job_that_does_not_save_in_time_keeps_its_gpus() -> None:
    world = asked_to_leave()
    world.save_deadline_passes("a")
    a, b = world.job("a"), world.job("b")
    assert (a.stage, len(a.gpus), a.preemptions) == (Stage.TRAINING, 2, 0)
    assert (b.stage, b.hand_over) == (Stage.READY, None)


def test_a_preemption_is_withdrawn_if_the_newcomer_goes() -> None:
    world = asked_to_leave()
    world.event(ev.CancelRequested(JobId("b")))
    assert "withdrawn" in world.kinds
    assert (world.job("a").stage, world.job("a").preemptions) == (Stage.TRAINING, 0)


def test_idle_gpus_spare_a_job_that_was_to_be_preempted() -> None:
    world = World().boot(4)
    for name in ("a", "c"):
        world.running(name, 2, 2)
    world.wait(300.0)
    world.submit("b", 2, priority=100)
    world.new_containers[JobId("b")] = {"slow_init": True}
    preempt(world)
    assert world.job("a").donation is not None
    world.finish("c")
    world.settle()
    assert (world.job("a").donation, world.job("a").stage) == (None, Stage.TRAINING)
    world.container("b").slow_init = False
    world.settle()
    assert (world.job("b").stage, world.job("a").preemptions) == (Stage.TRAINING, 0)


def test_a_program_that_turns_out_not_to_save_is_not_asked_to_leave() -> None:
    world = two_jobs(may_restart=True)
    world.new_containers[JobId("b")] = {"slow_init": True}
    preempt(world)
    world.container("a").program = Saves.NEVER
    world.report(world.container("a"))
    world.container("b").slow_init = False
    world.settle()
    assert world.job("a").stage is Stage.TRAINING
    assert "a keeps its GPUs: it cannot save its steps" in world.texts


def test_a_container_that_ends_in_order_before_its_answer_counts_as_preempted() -> None:
    world = asked_to_leave()
    world.kill_container("a", code=0)
    a = world.job("a")
    assert (a.preemptions, a.failures, a.state) == (1, 0, JobState.SUBMITTED)


def test_a_container_killed_before_its_answer_is_a_failure_and_no_preemption() -> None:
    world = asked_to_leave()
    world.kill_container("a")
    assert (world.job("a").preemptions, world.job("a").failures) == (0, 1)


def halt(world: World) -> None:
    world.event(ev.HaltRequested(JobId("a")))


def complete(world: World) -> None:
    world.finish("a")


@pytest.mark.parametrize(
    ("event", "state"), [(halt, JobState.HALTED), (complete, JobState.COMPLETED)]
)
def test_a_person_or_its_own_end_comes_before_the_preemption(
    event: Callable[[World], None], state: JobState
) -> None:
    world = asked_to_leave()
    event(world)
    for container in world.containers.values():
        container.saves = True
    world.settle()
    assert world.job("a").state is state
    assert (world.job("b").stage, len(world.job("b").gpus)) == (Stage.TRAINING, 2)


@pytest.mark.parametrize("moment", ["asked", "saving", "stopping"])
def test_a_controller_killed_between_preemption_and_grant_carries_it_through(moment: str) -> None:
    world = two_jobs()
    if moment == "asked":
        world.effects = False
    world.container("a").saves = moment != "saving"
    world.auto = False
    preempt(world)
    world.held.clear()
    world.effects = True
    if moment != "asked":
        world.converge(world.container("b"))
    if moment == "stopping":
        world.converge(world.container("a"))
    assert world.job("b").stage is not Stage.TRAINING
    world.event(ev.ControllerStarted(2, "test", world.mechanism, world.limits))
    for container in world.containers.values():
        container.saves = True
    world.auto = True
    for command in world.engine.outstanding():
        world.carry_out(command)
    for container in list(world.containers.values()):
        world.report(container)
    world.settle()
    a = world.job("a")
    assert (world.job("b").stage, a.preemptions, a.steps_lost) == (Stage.TRAINING, 1, 0)


def test_a_log_of_an_earlier_release_dates_no_start() -> None:
    world = World(limits=replace(LOCAL, service_rules=0)).boot(2)
    world.running("a", 2, 2)
    assert world.job("a").runs_since_s is None
    world.wait(300.0)
    world.submit("b", 2, priority=1)
    preempt(world)
    assert world.job("a").preemptions == 1, "its first start counts"


def test_a_reshape_is_no_start() -> None:
    world = World().boot(4)
    world.running("a", 2, 2, 4)
    world.wait(100.0)
    world.plan(("a", 4))
    assert (len(world.job("a").gpus), world.job("a").runs_since_s) == (4, 0.0)


def test_the_request_to_leave_names_the_newcomer() -> None:
    change = asked_to_leave().job("a").change
    assert change is not None
    assert (change.kind, change.for_job) == (ChangeKind.LEAVE, "b")
