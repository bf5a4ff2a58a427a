"""The hand-over, row by row: what newcomers and victims do while GPUs change hands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.model import JobId, JobState, Stage
from reshape_sidecar.wire import OnSaveTimeout, Phase
from tests.support.hand_over_scenes import (
    assert_given_back,
    hand_over_begun,
    initialise,
    mid_shrink,
    two_jobs,
)
from tests.support.world import World


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


def test_the_check_of_a_donors_release_covers_the_process_that_has_just_stopped() -> None:
    world = two_jobs()
    before = world.job("a").generation
    world.plan(("b", 2), ("a", 2))
    assert world.job("a").generation > before
    assert world.verified[-1].generation == before


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
    seen = c.observed()
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
    assert world.job("a").reason == (
        "paused, checkpoint kept: failed to start on 4 GPUs; last error: exit code 1"
    )
    assert world.gpu_states() == ["idle"] * 4


def test_a_job_that_starts_at_none_of_its_sizes_names_them_all_and_the_last_error() -> None:
    world = World().boot()
    world.running("a", 4, 1, 2, 4, retries=9)
    world.train("a", 10)
    world.container("a").crashes = True
    world.new_containers[JobId("a")] = {"crashes": True}
    world.crash("a")
    for size in (2, 1):
        world.new_containers[JobId("a")]["code"] = 6 - size  # another failure at each size
        assert world.job("a").reason.startswith(f"queued again: failed to start on {size * 2} GPUs")
        world.wait(400)
        world.plan(("a", size))
    assert world.job("a").struck == (4, 2, 1)
    assert world.job("a").reason == (
        "paused, checkpoint kept: failed to start on 4, 2 and 1 GPUs; last error: exit code 5"
    )


def test_a_save_that_is_not_answered_in_time_is_refused_and_nothing_is_taken() -> None:
    world = mid_shrink()
    world.save_deadline_passes("a")
    assert_given_back(world)
    b = world.job("b")
    assert b.stage is Stage.READY
    assert b.reason == "a did not save in time and keeps its GPUs"
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
