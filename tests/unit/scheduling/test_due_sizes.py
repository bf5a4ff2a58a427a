"""A pinned job gets its size under every policy, down too and for no other job; and a queued job
that waits for it says so."""

from __future__ import annotations

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.limits import LOCAL
from reshape_controller.core.model import JobId, Mechanism
from reshape_controller.policies import BUILT_IN, make_policy
from reshape_controller.scheduling import rounds
from reshape_controller.scheduling.planner import Planner
from reshape_sidecar.wire import Saves
from tests.support.container import Knobs
from tests.support.world import World

POLICIES = [name for name in BUILT_IN if name != "default"] + ["default:sizes=largest"]


class Played:
    """A world whose plans are a planner's."""

    def __init__(self, policy: str, mechanism: Mechanism = Mechanism.SIDECAR) -> None:
        self.world = World(mechanism=mechanism).boot(4)
        self.planner = Planner(make_policy(policy))

    def pin(self, job: str, size: int | None) -> list[str]:
        """A person pins a job; return the codes of the plans that follow."""
        self.world.event(ev.PinRequested(JobId(job), size, "ada"))
        return self.plan()

    def plan(self) -> list[str]:
        """Take the policy's plans until there is none; return their codes."""
        codes = []
        while self.world.engine.wants_plan():
            plan = self.planner.plan(self.world.engine)
            self.world.apply(plan)
            self.world.settle()
            codes.append(plan.reason_code)
        return codes

    def size(self, job: str) -> int:
        return len(self.world.job(job).gpus)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pin_brings_a_job_down_without_a_receiver_and_up_again(policy: str) -> None:
    it = Played(policy)
    it.world.running("a", 2, 1, 2)
    it.world.running("b", 2, 2)
    assert it.pin("a", 1)[0] == "shrinks-to-pin"
    assert (it.size("a"), it.world.gpu_states().count("idle")) == (1, 1)
    assert "a goes from 2 to 1 GPU: it is pinned there" in it.world.texts
    it.pin("a", 2)
    assert it.size("a") == 2
    assert (it.world.job("a").reshape_downs, it.world.job("a").reshape_ups) == (1, 1)


def test_the_gpus_that_a_pin_takes_are_idle_only_once_their_release_is_verified() -> None:
    it = Played("fifo")
    it.world.running("a", 2, 1, 2)
    it.world.dirty_gpus |= set(it.world.job("a").gpus)
    it.pin("a", 1)
    assert sorted(it.world.gpu_states()) == ["idle", "idle", "in use", "releasing"]
    it.world.dirty_gpus.clear()
    it.world.settle()
    assert sorted(it.world.gpu_states()) == ["idle", "idle", "idle", "in use"]


@pytest.mark.parametrize("policy", ["adaptive", "fifo"])
def test_a_pin_waits_for_a_hand_over_and_comes_after_it(policy: str) -> None:
    it = Played(policy)
    it.world.running("a", 4, 1, 2, 4)
    it.world.new_containers[JobId("b")] = Knobs(slow_init=True)
    it.world.submit("b", 2)
    it.world.plan(("b", 2), ("a", 2))
    assert "shrinks-to-pin" not in it.pin("a", 1)
    assert it.size("a") == 4
    it.world.container("b").slow_init = False
    it.world.settle()
    assert it.plan()[0] == "shrinks-to-pin"
    assert (it.size("a"), it.size("b")) == (1, 2)


def test_a_pin_is_tried_again_once_a_refused_save_is_over() -> None:
    it = Played("fifo")
    it.world.running("a", 2, 1, 2)
    it.world.container("a").saves = False
    it.pin("a", 1)
    it.world.save_deadline_passes("a")
    assert "shrinks-to-pin" not in it.plan()
    it.world.container("a").saves = True
    it.world.wait(LOCAL.refusal_cooldown_s)
    assert it.plan()[0] == "shrinks-to-pin"
    assert it.size("a") == 1


def test_a_pin_moves_no_job_that_cannot_save_nor_any_under_the_mechanism_none() -> None:
    it = Played("adaptive")
    it.world.new_containers[JobId("a")] = Knobs(program=Saves.NEVER)
    it.world.running("a", 2, 1, 2)
    it.pin("a", 1)
    assert (it.size("a"), it.world.job("a").stage.value) == (2, "training")
    it = Played("default", Mechanism.NONE)
    it.world.running("a", 2, 1, 2)
    it.pin("a", 1)
    assert (it.size("a"), it.world.job("a").stage.value) == (2, "training")


def test_idle_gpus_that_a_queued_job_may_still_want_are_not_for_a_pin_that_the_policy_left() -> (
    None
):
    it = Played("fifo")
    it.world.running("a", 1, 1, 2)
    it.world.submit("b", 4)
    it.pin("a", 2)
    assert it.size("a") == 1
    it.world.event(ev.CancelRequested(JobId("b"), "ada"))
    it.plan()
    assert it.size("a") == 2


@pytest.mark.parametrize("policy", ["adaptive", "adaptive-v1", "paper"])
def test_a_queued_job_that_waits_for_a_pinned_donor_says_so(policy: str) -> None:
    it = Played(policy)
    it.world.running("a", 4, 1, 2, 4)
    it.pin("a", 4)
    it.world.submit("b", 2, max_wait_s=60.0)
    it.world.wait(61.0)
    it.world.engine.state.plan_wanted = True
    codes = it.plan()
    assert codes[-1] == "waits-for-pinned"
    why = "b waits: a is pinned at 4 GPUs; to let it give some: reshape unpin a"
    assert it.world.job("b").reason == why
    it.pin("a", None)
    assert (it.size("a"), it.size("b")) == (2, 2)


def test_a_policy_that_takes_nothing_from_running_jobs_blames_no_pin() -> None:
    it = Played("fifo")
    it.world.running("a", 4, 1, 2, 4)
    it.pin("a", 4)
    it.world.submit("b", 2)
    it.plan()
    assert "pinned" not in it.world.job("b").reason


def test_a_plan_to_a_pin_is_repeated_from_the_log_without_a_policy() -> None:
    it = Played("adaptive")
    it.world.running("a", 2, 1, 2)
    it.pin("a", 1)
    assert it.world.replay() == it.world.log
    done = rounds.run(it.world.engine, it.planner, (ev.PinRequested(JobId("a"), 2, "ada"),), 9.0)
    assert done.plans[0].reason_code == "grows-to-pin"
