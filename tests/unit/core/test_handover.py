"""The hand-over, row by row: each test is one thing that can happen while GPUs change hands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.limits import Limits
from reshape_controller.core.model import GpuId, HostId, JobId, JobState, Mechanism, Stage
from reshape_controller.core.plan import Plan
from reshape_sidecar.wire import Mode, OnSaveTimeout, Phase
from tests.world import World


def two_jobs(**victim: object) -> World:
    """Job ``a`` trains on all four GPUs; ``b`` has been submitted and wants two."""
    world = World().boot()
    world.running("a", 4, 1, 2, 4, **victim)
    world.submit("b", 2)
    return world


def hand_over_begun(slow: bool = True) -> World:
    """``b`` is promised two of ``a``'s GPUs and (if slow) still initialises."""
    world = two_jobs()
    world.new_containers[JobId("b")] = {"slow_init": slow}
    world.plan(("b", 2), ("a", 2))
    return world


def initialise(world: World, name: str = "b") -> None:
    world.container(name).slow_init = False
    world.settle()


def mid_shrink() -> World:
    """``a`` was asked to shrink for ``b`` and has not saved yet."""
    world = hand_over_begun()
    world.container("a").saves = False
    initialise(world)
    assert world.job("a").stage is Stage.SAVING
    return world


def assert_given_back(world: World) -> None:
    """Nothing was taken from ``a``: it trains on its four GPUs under its first process."""
    a = world.job("a")
    assert (a.stage, a.state, len(a.gpus)) == (Stage.TRAINING, JobState.RUNNING, 4)
    assert world.gpu_states() == ["in use"] * 4
    assert all(gpu.promised_to is None for gpu in world.engine.state.gpus.values())


def test_the_newcomer_is_initialised_while_the_victim_still_trains() -> None:
    world = hand_over_begun()
    assert world.job("b").stage is Stage.LAUNCHING
    assert world.job("a").stage is Stage.TRAINING
    assert len(world.container("a").running) == 4


def test_two_gpus_go_over_and_nothing_is_lost() -> None:
    world = two_jobs()
    world.train("a", 40)
    world.plan(("b", 2), ("a", 2))
    a, b = world.job("a"), world.job("b")
    assert (a.stage, len(a.gpus), a.reshape_downs) == (Stage.TRAINING, 2, 1)
    assert (b.stage, len(b.gpus)) == (Stage.TRAINING, 2)
    assert a.steps_lost == 0
    assert a.container_restarts == 0
    order = [k for k in world.kinds if k in ("initialized", "shrink-asked", "stopped", "granted")]
    assert order[-4:] == ["initialized", "shrink-asked", "stopped", "granted"]


def test_a_grant_waits_for_the_release_to_be_verified_not_for_the_victims_restart() -> None:
    world = hand_over_begun()
    given = world.job("b").hand_over
    assert given is not None
    world.dirty_gpus = {given.gpus[0]}
    initialise(world)
    assert world.job("a").stage is Stage.TRAINING
    assert world.job("b").stage is Stage.READY
    world.dirty_gpus = set()
    world.settle()
    assert world.job("b").stage is Stage.TRAINING


def test_a_verification_of_an_earlier_release_says_nothing_of_a_later_one() -> None:
    world = two_jobs()
    world.plan(("b", 2), ("a", 2))
    earlier = world.verified[-1]
    world.finish("b")
    world.plan(("a", 4))
    world.submit("c", 2)
    world.auto = False
    world.plan(("c", 2), ("a", 2))
    world.auto = True
    given = world.job("c").hand_over
    assert given is not None
    world.dirty_gpus = set(given.gpus)
    world.settle()
    assert set(earlier.gpus) <= set(given.gpus)
    for gpu in given.gpus:
        world.event(replace(earlier, gpus=(gpu,)))
    assert world.job("c").stage is Stage.READY
    assert sorted(world.gpu_states())[-2:] == ["releasing", "releasing"]


def test_a_newcomer_that_never_initialises_takes_nothing() -> None:
    world = hand_over_begun()
    world.wait(world.limits.early_init_s + 1)
    assert_given_back(world)
    b = world.job("b")
    assert b.state is JobState.SUBMITTED
    assert b.failures == 1
    assert "did not initialise within 60 s" in " ".join([b.reason])


def test_a_newcomer_that_dies_after_the_release_leaves_idle_gpus_and_is_queued_again() -> None:
    world = hand_over_begun()
    given = world.job("b").hand_over
    assert given is not None
    world.dirty_gpus = set(given.gpus)
    initialise(world)
    world.kill_container("b")
    world.dirty_gpus = set()
    world.settle()
    assert sorted(world.gpu_states()) == ["idle", "idle", "in use", "in use"]
    assert world.job("b").state is JobState.SUBMITTED
    world.plan(("a", 4))
    assert len(world.job("a").gpus) == 4


def test_a_newcomer_whose_script_crashes_at_once_fails_and_its_gpus_are_idle() -> None:
    world = two_jobs()
    world.new_containers[JobId("b")] = {"crashes": True}
    world.plan(("b", 2), ("a", 2))
    b = world.job("b")
    assert b.state is JobState.FAILED
    assert "exit code 1" in b.reason
    assert sorted(world.gpu_states()) == ["idle", "idle", "in use", "in use"]


def test_a_victim_that_completes_during_early_initialisation_hands_over_all_the_same() -> None:
    world = hand_over_begun()
    world.finish("a")
    assert world.job("a").state is JobState.COMPLETED
    initialise(world)
    assert len(world.job("b").gpus) == 2
    assert sorted(world.gpu_states()) == ["idle", "idle", "in use", "in use"]


def test_a_victim_that_completes_between_request_and_answer_is_complete() -> None:
    world = mid_shrink()
    world.finish("a")
    assert world.job("a").state is JobState.COMPLETED
    assert world.job("b").stage is Stage.TRAINING


def test_a_victim_whose_save_says_complete_is_complete() -> None:
    world = mid_shrink()
    world.auto = False
    c = world.container("a")
    c.running, c.step = (), 10
    seen = world.observed(c)
    from reshape_sidecar.wire import Outcome, OutcomeKind

    generation = world.job("a").generation
    outcome = Outcome(generation, OutcomeKind.STOPPING, 10, complete=True)
    c.phase = Phase.INITIALIZED
    seen = replace(seen, sequence=99, generation=generation, outcome=outcome)
    world.event(ev.SideCarReported(seen))
    assert world.job("a").state is JobState.COMPLETED


def test_a_victim_that_cannot_start_at_the_smaller_size_is_queued_without_that_size() -> None:
    world = two_jobs()
    world.container("a").crashes = True
    world.plan(("b", 2), ("a", 2))
    a = world.job("a")
    assert a.struck == (2,)
    assert a.state is JobState.SUBMITTED
    assert "size-struck" in world.kinds
    assert world.job("b").stage is Stage.TRAINING


def test_a_victim_with_no_size_left_is_halted_with_its_checkpoint() -> None:
    world = World().boot()
    world.running("a", 4, 4)
    world.train("a", 10)
    world.container("a").crashes = True
    world.crash("a")
    assert world.job("a").state is JobState.HALTED
    assert "checkpoint is kept" in world.job("a").reason
    assert world.gpu_states() == ["idle"] * 4


def test_a_save_that_is_not_answered_in_time_is_refused_and_nothing_is_taken() -> None:
    world = mid_shrink()
    world.save_deadline_passes("a")
    assert_given_back(world)
    b = world.job("b")
    assert b.stage is Stage.READY
    assert "refused" in b.reason
    with pytest.raises(PlanRejected, match="refused"):
        world.plan(("b", 2), ("a", 2))


def test_a_save_that_is_not_answered_in_time_is_killed_where_the_record_says_so() -> None:
    world = two_jobs(on_save_timeout=OnSaveTimeout.KILL)
    world.train("a", 30)
    world.container("a").saves = False
    world.plan(("b", 2), ("a", 2))
    world.save_deadline_passes("a")
    assert world.job("a").steps_lost == 30
    assert len(world.job("a").gpus) == 2
    assert world.job("b").stage is Stage.TRAINING


def test_after_a_refusal_the_initialised_newcomer_waits_ten_minutes_and_is_queued_again() -> None:
    world = mid_shrink()
    world.save_deadline_passes("a")
    place = world.job("b").place
    world.wait(world.limits.initialized_hold_s + 1)
    b = world.job("b")
    assert (b.state, b.stage, b.place) == (JobState.SUBMITTED, Stage.NONE, place)
    assert b.failures == 0


def test_an_initialised_newcomer_that_waits_starts_without_another_initialisation() -> None:
    world = mid_shrink()
    world.save_deadline_passes("a")
    world.finish("a")
    world.plan(("b", 2))
    assert world.job("b").attempt == 1
    assert world.job("b").stage is Stage.TRAINING


def test_a_newcomer_cancelled_before_the_shrink_takes_nothing() -> None:
    world = hand_over_begun()
    world.event(ev.CancelRequested(JobId("b"), "eve"))
    assert world.job("b").state is JobState.CANCELLED
    assert_given_back(world)


def test_a_newcomer_cancelled_after_the_shrink_was_asked_withdraws_it() -> None:
    world = mid_shrink()
    asked = world.job("a").generation
    world.event(ev.CancelRequested(JobId("b"), "eve"))
    assert world.job("b").state is JobState.CANCELLED
    assert world.job("a").generation > asked
    assert_given_back(world)


def test_a_newcomer_cancelled_after_the_outcome_rolls_forward_to_idle_gpus() -> None:
    world = hand_over_begun()
    given = world.job("b").hand_over
    assert given is not None
    world.dirty_gpus = set(given.gpus)
    initialise(world)
    world.event(ev.CancelRequested(JobId("b"), "eve"))
    world.dirty_gpus = set()
    world.settle()
    assert sorted(world.gpu_states()) == ["idle", "idle", "in use", "in use"]


def test_a_victim_cancelled_while_adjusting_gives_everything() -> None:
    world = mid_shrink()
    world.event(ev.CancelRequested(JobId("a"), "eve"))
    world.save_deadline_passes("a")
    assert world.job("a").state is JobState.CANCELLED
    assert world.job("b").stage is Stage.TRAINING
    assert sorted(world.gpu_states()) == ["idle", "idle", "in use", "in use"]


def test_a_second_newcomer_cannot_be_planned_onto_promised_gpus() -> None:
    world = hand_over_begun()
    world.submit("c", 2)
    with pytest.raises(PlanRejected, match="frozen"):
        world.plan(("c", 2), ("a", 2))
    with pytest.raises(PlanRejected, match="idle GPUs"):
        world.plan(("c", 2))
    world.finish("a")
    world.plan(("c", 2))
    initialise(world)
    assert world.job("b").stage is world.job("c").stage is Stage.TRAINING


def test_gpus_that_a_third_job_frees_before_the_shrink_spare_the_victim() -> None:
    world = World().boot(gpus=6)
    world.running("a", 4, 1, 2, 4)
    world.running("c", 2, 2)
    world.submit("b", 2)
    world.new_containers[JobId("b")] = {"slow_init": True}
    world.plan(("b", 2), ("a", 2))
    world.finish("c")
    initialise(world)
    assert len(world.job("a").gpus) == 4
    assert world.job("a").reshape_downs == 0
    assert len(world.job("b").gpus) == 2
    assert "replanned" in world.kinds


def test_a_frozen_job_cannot_be_reshaped_up() -> None:
    world = World().boot(gpus=8)
    world.running("a", 4, 1, 2, 4, 8)
    world.running("f", 4, 4)
    world.submit("b", 2)
    world.new_containers[JobId("b")] = {"slow_init": True}
    world.plan(("b", 2), ("a", 2))
    world.finish("f")
    assert world.job("a").donation is None, "idle GPUs spare it"
    world.submit("c", 8)
    world.container("a").saves = False
    world.plan(("a", 4)) if False else None
    with pytest.raises(PlanRejected, match="frozen"):
        world.plan(("b", 2))


def test_a_newcomer_during_a_reshape_up_waits_for_it() -> None:
    world = World().boot()
    world.running("a", 2, 1, 2, 4)
    world.container("a").saves = False
    world.plan(("a", 4))
    world.submit("b", 2)
    with pytest.raises(PlanRejected, match="frozen"):
        world.plan(("b", 2), ("a", 2))
    world.container("a").saves = True
    world.settle()
    assert len(world.job("a").gpus) == 4
    world.plan(("b", 2), ("a", 2))
    assert world.job("b").stage is Stage.TRAINING


def test_a_reshape_up_that_is_refused_leaves_the_gpus_idle() -> None:
    world = World().boot()
    world.running("a", 2, 1, 2, 4)
    world.container("a").saves = False
    world.plan(("a", 4))
    assert sorted(world.gpu_states()) == ["in use", "in use", "reserved", "reserved"]
    world.save_deadline_passes("a")
    assert sorted(world.gpu_states()) == ["idle", "idle", "in use", "in use"]


def test_late_and_duplicate_reports_change_nothing() -> None:
    world = hand_over_begun()
    late = world.observed(world.container("a"))
    initialise(world)
    before = world.engine.state.dump()
    world.event(ev.SideCarReported(late))
    world.event(ev.SideCarReported(replace(late, sequence=10_000, attempt=0)))
    assert world.engine.state.dump() == before


def test_an_unreachable_victim_before_the_shrink_aborts_the_hand_over() -> None:
    world = hand_over_begun()
    world.container("a").reachable = False
    world.event(ev.SideCarFellSilent(JobId("a"), 1))
    initialise(world)
    assert_given_back(world)
    assert world.job("b").stage is Stage.READY
    assert "unreachable" in world.job("b").reason


def test_an_unreachable_victim_after_the_shrink_is_waited_for() -> None:
    world = hand_over_begun()
    world.container("a").reachable = False
    initialise(world)
    assert world.job("a").stage is Stage.SAVING
    world.event(ev.SideCarFellSilent(JobId("a"), 1))
    world.wait(10 * 60)
    assert world.job("a").stage is Stage.SAVING
    assert [g.state.value for g in world.engine.state.gpus.values()] == ["in use"] * 4
    world.container("a").reachable = True
    world.settle()
    assert world.job("b").stage is Stage.TRAINING
    assert len(world.job("a").gpus) == 2


def test_a_sidecar_that_never_answers_has_its_request_withdrawn() -> None:
    world = mid_shrink()
    world.auto = False
    world.wait(world.limits.save_min_s + world.limits.save_answer_s + 1)
    assert "withdrawn" in world.kinds
    world.auto = True
    world.settle()
    assert_given_back(world)


def test_a_released_gpu_that_is_not_empty_is_quarantined_with_the_reason() -> None:
    world = hand_over_begun()
    given = world.job("b").hand_over
    assert given is not None
    world.dirty_gpus = {given.gpus[1]}
    initialise(world)
    dirty = world.engine.state.gpus[given.gpus[1]]
    why = ev.ReleaseNotEmpty(JobId("a"), 1, dirty.generation, (dirty.id,), "1 GiB still used")
    world.event(why)
    world.wait(world.limits.verify_s + 1)
    dirty = world.engine.state.gpus[dirty.id]
    assert (dirty.state.value, dirty.reason) == ("quarantined", "1 GiB still used")
    assert world.job("b").stage is Stage.READY
    assert world.engine.state.gpus[given.gpus[0]].state.value == "idle"
    world.event(ev.GpuCleared(dirty.id, "op"))
    world.dirty_gpus = set()
    world.plan(("b", 2))
    assert world.job("b").stage is Stage.TRAINING


STATES = ["running", "early", "shrink", "verify", "grow", "ready"]


def in_state(name: str) -> World:
    if name == "grow":
        world = World().boot(hosts=2)
        world.running("a", 2, 1, 2, 4)
        world.container("a").saves = False
        world.plan(("a", 4))
        return world
    world = World().boot(hosts=2)
    world.running("a", 4, 1, 2, 4)
    if name == "running":
        return world
    world.submit("b", 2)
    world.new_containers[JobId("b")] = {"slow_init": True}
    if name == "ready":
        world.container("a").saves = False
    world.plan(("b", 2), ("a", 2))
    if name == "early":
        return world
    world.container("a").saves = name == "verify"
    if name == "verify":
        given = world.job("b").hand_over
        assert given is not None
        world.dirty_gpus = set(given.gpus)
    initialise(world)
    if name == "ready":
        world.save_deadline_passes("a")
    return world


@pytest.mark.parametrize("state", STATES)
def test_a_silent_host_loses_its_gpus_and_its_jobs_go_elsewhere(state: str) -> None:
    world = in_state(state)
    for container in list(world.containers.values()):
        container.reachable = False
    world.event(ev.HostFellSilent(HostId("host-0"), "no heartbeat for 120 s"))
    lost = [gpu.state.value for gpu in world.engine.state.gpus_of_host(HostId("host-0"))]
    assert lost == ["lost"] * 4
    a = world.job("a")
    assert (a.state, a.stage, a.failures) == (JobState.SUBMITTED, Stage.NONE, 0)
    world.plan(("a", 4), host="host-1")
    assert world.job("a").host == "host-1"
    assert world.job("a").attempt == 2
    assert world.engine.desired(JobId("a")).attempt == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("state", STATES)
def test_a_host_that_was_cleaned_is_used_again(state: str) -> None:
    world = in_state(state)
    for container in list(world.containers.values()):
        container.reachable = False
    world.event(ev.HostFellSilent(HostId("host-0"), "cut off"))
    for key in list(world.containers):
        del world.containers[key]
    world.dirty_gpus = set()
    world.event(ev.HostCleaned(HostId("host-0"), "rebooted"))
    assert [g.state.value for g in world.engine.state.gpus_of_host(HostId("host-0"))] == (
        ["idle"] * 4
    )
    world.plan(("a", 4), host="host-0")
    assert world.job("a").stage is Stage.TRAINING


@pytest.mark.parametrize("state", STATES)
def test_a_host_that_rebooted_at_once_frees_everything_of_before(state: str) -> None:
    world = in_state(state)
    for key in list(world.containers):
        if world.containers[key].host == "host-0":
            del world.containers[key]
    world.dirty_gpus = set()
    world.event(ev.HostCleaned(HostId("host-0"), "boot id changed"))
    assert world.job("a").state is JobState.SUBMITTED
    states = [g.state.value for g in world.engine.state.gpus_of_host(HostId("host-0"))]
    assert states == ["idle"] * 4


def test_a_clock_that_jumps_back_is_not_believed() -> None:
    world = two_jobs()
    world.now_s = 1000.0
    world.train("a", 1)
    world.now_s = 10.0
    world.train("a", 1)
    assert world.engine.state.now_s == 1000.0
    world.submit("c", 1)
    assert world.job("c").submitted_at_s == 1000.0


def test_a_container_killed_in_training_is_launched_again_from_its_checkpoint() -> None:
    world = World().boot()
    world.running("a", 4, 4)
    world.train("a", 7)
    world.kill_container("a")
    a = world.job("a")
    assert (a.state, a.failures, a.steps_lost) == (JobState.SUBMITTED, 1, 7)
    with pytest.raises(PlanRejected, match="waits after a failure"):
        world.plan(("a", 4))
    world.wait(world.limits.retry_backoff_s + 0.1)
    world.plan(("a", 4))
    assert (world.job("a").attempt, world.job("a").container_restarts) == (2, 1)


def test_a_job_fails_when_its_retries_are_used_up() -> None:
    world = World().boot()
    world.running("a", 4, 4, retries=1)
    world.crash("a")
    assert world.job("a").state is JobState.RUNNING
    world.crash("a")
    assert world.job("a").state is JobState.FAILED
    assert world.gpu_states() == ["idle"] * 4


def test_a_crash_starts_the_process_again_in_its_living_container() -> None:
    world = World().boot()
    world.running("a", 4, 4)
    world.crash("a")
    a = world.job("a")
    assert (a.stage, a.attempt, a.process_restarts, a.failures) == (Stage.TRAINING, 1, 1, 1)


def test_a_first_step_that_never_comes_is_a_failed_start() -> None:
    world = World().boot()
    world.submit("a", 2, 4)
    world.auto = False
    world.plan(("a", 4))
    world.converge(world.container("a"))
    world.engine.desired(JobId("a"))
    c = world.container("a")
    c.generation, c.phase, c.running = world.job("a").generation, Phase.STARTING, ()
    world.wait(world.limits.first_step_s + 1)
    assert world.job("a").stage is Stage.ENDING
    assert "start-failed" in world.kinds


class TestTerminate:
    """The same plans under the mechanism ``terminate``: containers end, and are launched again."""

    def world(self) -> World:
        world = World(mechanism=Mechanism.TERMINATE).boot()
        world.running("a", 4, 1, 2, 4)
        world.submit("b", 2)
        return world

    def test_both_run_afterwards_and_the_victim_has_a_new_container(self) -> None:
        world = self.world()
        world.train("a", 5)
        world.plan(("b", 2), ("a", 2))
        a, b = world.job("a"), world.job("b")
        assert (a.attempt, len(a.gpus), a.steps_lost) == (2, 2, 0)
        assert (b.attempt, len(b.gpus)) == (1, 2)
        assert [(job.reshape_ups, job.reshape_downs) for job in (a, b)] == [(0, 1), (0, 0)]
        assert a.reshaped_at_s is not None

    def test_the_newcomer_is_launched_only_after_the_gpus_are_free(self) -> None:
        world = self.world()
        world.container("a").saves = False
        world.plan(("b", 2), ("a", 2))
        assert world.job("b").stage is Stage.NONE
        world.container("a").saves = True
        world.settle()
        assert world.job("b").stage is Stage.TRAINING

    def test_a_reshape_up_relaunches(self) -> None:
        world = World(mechanism=Mechanism.TERMINATE).boot()
        world.running("a", 2, 1, 2, 4)
        world.plan(("a", 4))
        assert (world.job("a").attempt, len(world.job("a").gpus)) == (2, 4)
        assert (world.job("a").reshape_ups, world.job("a").reshape_downs) == (1, 0)

    def test_a_refusal_takes_nothing(self) -> None:
        world = self.world()
        world.container("a").saves = False
        world.plan(("b", 2), ("a", 2))
        world.save_deadline_passes("a")
        assert_given_back(world)
        assert world.job("b").state is JobState.SUBMITTED


def test_the_mechanism_none_reshapes_nobody() -> None:
    world = World(mechanism=Mechanism.NONE).boot()
    world.running("a", 4, 2, 4)
    world.submit("b", 2)
    with pytest.raises(PlanRejected, match="mechanism none"):
        world.plan(("b", 2), ("a", 2))


def test_a_job_moves_to_another_host_by_save_terminate_relaunch() -> None:
    world = World().boot(hosts=2)
    world.running("a", 2, 2, 4)
    world.train("a", 3)
    world.plan(("a", 4), host="host-1")
    a = world.job("a")
    assert (a.host, a.attempt, len(a.gpus), a.steps_lost) == ("host-1", 2, 4, 0)
    assert [g.state.value for g in world.engine.state.gpus_of_host(HostId("host-0"))] == (
        ["idle"] * 4
    )


def test_drain_saves_the_job_and_nothing_starts_there() -> None:
    world = World().boot(hosts=2)
    world.running("a", 4, 2, 4)
    world.event(ev.HostDrained(HostId("host-0"), "op"))
    assert world.job("a").state is JobState.SUBMITTED
    assert world.job("a").steps_lost == 0
    with pytest.raises(PlanRejected, match="cannot be used"):
        world.plan(("a", 4), host="host-0")
    world.plan(("a", 4), host="host-1")
    assert world.job("a").host == "host-1"


def test_drain_in_the_middle_of_a_hand_over_waits_for_it_and_then_empties_the_host() -> None:
    world = mid_shrink()
    world.event(ev.HostDrained(HostId("host-0"), "op"))
    world.container("a").saves = True
    world.settle()
    assert world.gpu_states() == ["idle"] * 4
    assert {world.job(n).state for n in "ab"} == {JobState.SUBMITTED}


def test_halt_saves_and_gives_all_gpus_back_and_resume_queues_again() -> None:
    world = World().boot()
    world.running("a", 4, 4)
    world.event(ev.HaltRequested(JobId("a"), "ann"))
    assert world.job("a").state is JobState.HALTED
    assert world.gpu_states() == ["idle"] * 4
    world.event(ev.ResumeRequested(JobId("a"), "ann"))
    world.plan(("a", 4))
    assert world.job("a").stage is Stage.TRAINING


def test_halt_in_a_hand_over_is_kept_and_done_afterwards() -> None:
    world = mid_shrink()
    world.event(ev.HaltRequested(JobId("a"), "ann"))
    assert world.job("a").halt_wanted
    world.container("a").saves = True
    world.settle()
    assert world.job("a").state is JobState.HALTED
    assert world.job("b").stage is Stage.TRAINING


@pytest.mark.parametrize("state", STATES)
def test_a_controller_killed_here_and_started_again_touches_no_training(state: str) -> None:
    world = in_state(state)
    world.auto = False
    running = {key: (c.running, c.running_generation) for key, c in world.containers.items()}
    world.event(ev.ControllerStarted(2, "test", world.mechanism, world.limits))
    assert {k: (c.running, c.running_generation) for k, c in world.containers.items()} == running
    assert not world.engine.wants_plan()
    assert not any(c.mode is Mode.EXIT for c in world.engine.state.jobs.values())
    world.dirty_gpus = set()
    for container in world.containers.values():
        container.saves, container.slow_init = True, False
    world.auto = True
    for command in world.engine.outstanding():
        world.carry_out(command)
    for container in list(world.containers.values()):
        world.report(container)
    world.settle()
    assert not world.engine.state.observing
    assert world.job("a").stage is Stage.TRAINING


def test_nothing_is_granted_until_every_attempt_has_answered() -> None:
    world = in_state("verify")
    world.auto = False
    world.event(ev.ControllerStarted(2, "test", world.mechanism, world.limits))
    world.dirty_gpus = set()
    world.verify()
    world.report(world.container("b"))
    assert world.job("b").stage is Stage.READY, "a has not answered yet"
    world.event(ev.SideCarFellSilent(JobId("a"), 1))
    assert world.job("b").stage is Stage.STARTING


def test_a_controller_killed_between_append_and_effect_repeats_the_effect() -> None:
    world = two_jobs()
    world.effects = False
    world.plan(("b", 2), ("a", 2))
    assert (JobId("b"), 1) not in world.containers
    world.effects = True
    world.event(ev.ControllerStarted(2, "test", world.mechanism, world.limits))
    world.report(world.container("a"))
    for command in world.engine.outstanding():
        world.carry_out(command)
    world.settle()
    assert world.job("b").stage is Stage.TRAINING


def test_deadlines_start_anew_after_a_restart() -> None:
    world = hand_over_begun()
    world.auto = False
    world.now_s = 10_000.0
    world.event(ev.ControllerStarted(2, "test", world.mechanism, world.limits))
    world.event(ev.DeadlinesDue())
    assert world.job("b").stage is Stage.LAUNCHING
    assert world.engine.next_deadline_s() == 10_000.0 + world.limits.early_init_s


def test_the_log_fed_to_another_engine_gives_the_same_commands_byte_for_byte() -> None:
    world = mid_shrink()
    world.save_deadline_passes("a")
    world.wait(700)
    assert world.replay() == world.log


def test_the_state_survives_a_snapshot() -> None:
    world = mid_shrink()
    parts = world.engine.state.dump()
    from reshape_controller.core.state import State

    again = State.load(parts)
    assert again.dump() == parts
    assert again.next_deadline_s() == world.engine.state.next_deadline_s()


def test_an_unfit_container_fails_the_job_with_the_cause() -> None:
    world = World().boot()
    world.new_containers[JobId("a")] = {"slow_init": True}
    world.submit("a", 4)
    world.plan(("a", 4))
    c = world.container("a")
    c.phase, c.error, c.generation = Phase.UNFIT, "train.py is not there", 1
    world.report(c)
    assert world.job("a").state is JobState.FAILED
    assert world.job("a").reason == "train.py is not there"
    assert world.gpu_states() == ["idle"] * 4


def test_limits_of_a_run_enter_the_log() -> None:
    world = World(limits=Limits(early_init_s=5.0)).boot()
    world.new_containers[JobId("a")] = {"slow_init": True}
    world.submit("a", 4)
    world.plan(("a", 4))
    assert world.engine.next_deadline_s() == 5.0
    assert GpuId("GPU-0-0") in world.engine.state.gpus


def test_a_job_that_waits_says_what_the_policy_said() -> None:
    world = two_jobs()
    world.apply(Plan((), "waits", "it ends sooner if it waits for a", JobId("b")))
    assert world.job("b").reason == "it ends sooner if it waits for a"
    assert world.job("b").state is JobState.SUBMITTED
