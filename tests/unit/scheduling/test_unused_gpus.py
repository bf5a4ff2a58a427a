"""A program that uses fewer GPUs than it has keeps those that it uses, and the rest go back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.growth import why_not_larger
from reshape_controller.core.limits import UNUSED_AFTER_S
from reshape_controller.core.model import JobId, Mechanism
from reshape_controller.core.state import State
from reshape_sidecar.wire import LEVEL_DEVICES, Processes, Saves
from reshape_sidecar.wire_levels import at_level
from tests.support.container import Knobs
from tests.unit.scheduling.test_due_sizes import POLICIES, Played

A = JobId("a")


def training(
    policy: str = "adaptive",
    *sizes: int,
    uses: int | None = 1,
    size: int = 2,
    mechanism: Mechanism = Mechanism.SIDECAR,
    program: Saves | None = None,
    **fields: object,
) -> Played:
    """A job that trains, whose program uses so many of its GPUs."""
    it = Played(policy, mechanism)
    it.world.new_containers[A] = Knobs(uses=uses)
    if program is not None:
        it.world.new_containers[A]["program"] = program
    it.world.running("a", size, *(sizes or (1, 2)), **fields)
    return it


def after(it: Played, seconds: float) -> list[str]:
    """Let time pass and training report; return the codes of the plans that follow."""
    it.world.wait(seconds)
    it.world.train("a", 1)
    return it.plan()


@pytest.mark.parametrize("policy", POLICIES)
def test_gpus_that_a_program_does_not_use_go_back_after_a_minute(policy: str) -> None:
    it = training(policy)
    it.world.running("b", 2, 2)
    assert "gives-unused-back" not in after(it, UNUSED_AFTER_S - 1)
    assert it.size("a") == 2
    assert after(it, 1)[0] == "gives-unused-back"
    assert (it.size("a"), it.world.gpu_states().count("idle")) == (1, 1)
    assert it.world.job("a").steps_lost == 0
    assert "a goes from 2 to 1 GPU: its program uses 1 of them" in it.world.texts


def test_they_are_idle_only_once_their_release_is_verified() -> None:
    it = training()
    it.world.dirty_gpus |= set(it.world.job("a").gpus)
    after(it, UNUSED_AFTER_S)
    assert sorted(it.world.gpu_states()) == ["idle", "idle", "in use", "releasing"]
    it.world.dirty_gpus.clear()
    it.world.settle()
    assert it.world.gpu_states().count("idle") == 3


@pytest.mark.parametrize("policy", ["adaptive", "paper", "optimus", "srtf"])
def test_a_job_that_gave_them_back_does_not_get_them_again(policy: str) -> None:
    it = training(policy, 1, 2, 4)
    after(it, UNUSED_AFTER_S)
    for _ in range(5):
        assert not {"grows", "moves"} & set(after(it, 1000.0))
        it.world.engine.state.plan_wanted = True
    assert it.size("a") == 1
    assert "MirroredStrategy" in why_not_larger(it.world.engine.state, it.world.job("a"))


def test_the_smallest_size_that_has_all_it_uses_counts() -> None:
    it = training("adaptive", 2, 3, 4, size=4)
    after(it, UNUSED_AFTER_S)
    assert it.size("a") == 2
    it = training("adaptive", 2, 4)
    assert "gives-unused-back" not in after(it, UNUSED_AFTER_S)
    assert it.world.job("a").sizes == (2,)
    it = training()
    it.world.engine.state.put_job(replace(it.world.job("a"), struck=(1,)))
    assert "gives-unused-back" not in after(it, UNUSED_AFTER_S)
    assert it.size("a") == 2


@pytest.mark.parametrize("uses", [2, None])
def test_a_program_that_uses_all_or_of_which_nobody_knows_keeps_all(uses: int | None) -> None:
    it = training(uses=uses)
    assert "gives-unused-back" not in after(it, UNUSED_AFTER_S)
    assert (it.size("a"), it.world.job("a").uses) == (2, 0)


def test_a_pinned_job_keeps_its_gpus_and_gives_them_back_once_it_is_free() -> None:
    it = training()
    it.pin("a", 2)
    assert "gives-unused-back" not in after(it, UNUSED_AFTER_S)
    assert it.size("a") == 2
    it.pin("a", None)
    assert after(it, 1)[0] == "gives-unused-back"
    it.pin("a", 2)
    assert it.size("a") == 2, "a person's word counts more"


@pytest.mark.parametrize(
    "fields", [{"processes": Processes.PER_GPU}, {"workers": 2}], ids=["per-gpu", "workers"]
)
def test_records_with_a_process_for_each_gpu_or_worker_keep_theirs(
    fields: dict[str, Any],
) -> None:
    it = training("adaptive", 2, 4, size=4, **fields)
    assert "gives-unused-back" not in after(it, UNUSED_AFTER_S)
    assert it.size("a") == 4


def test_no_step_is_lost_for_it_and_nothing_moves_under_the_mechanism_none() -> None:
    it = training(program=Saves.NEVER, may_restart=True)
    assert "gives-unused-back" not in after(it, UNUSED_AFTER_S)
    assert it.size("a") == 2
    it = training("default", mechanism=Mechanism.NONE)
    assert "gives-unused-back" not in after(it, UNUSED_AFTER_S)


def test_a_report_of_other_gpus_or_of_another_generation_counts_for_nothing() -> None:
    it = training()
    it.world.wait(UNUSED_AFTER_S)
    container = it.world.container("a")
    good = container.observed()
    for told in (
        replace(good, devices=good.devices[:1]),
        replace(good, generation=good.generation - 1),
    ):
        container.sequence += 1
        it.world.event(ev.SideCarReported(replace(told, sequence=container.sequence)))
        assert it.world.job("a").uses == 0
    assert after(it, 0)[0] == "gives-unused-back"


def test_a_restart_of_the_program_has_a_minute_again() -> None:
    it = training(retries=3)
    it.world.wait(UNUSED_AFTER_S - 1)
    it.world.crash("a")
    it.world.wait(10.0)
    assert it.world.job("a").stage.value == "training"
    assert "gives-unused-back" not in after(it, 10.0)
    assert after(it, UNUSED_AFTER_S)[0] == "gives-unused-back"


def test_after_a_pause_the_program_may_be_another_one() -> None:
    it = training()
    after(it, UNUSED_AFTER_S)
    assert it.world.job("a").sizes == (1,)
    it.world.event(ev.HaltRequested(A, "ada"))
    it.world.event(ev.ResumeRequested(A, "ada"))
    assert it.world.job("a").sizes == (1, 2)


def test_the_word_is_in_the_log_and_in_a_snapshot_and_is_not_sent_to_an_older_controller() -> None:
    it = training()
    report = it.world.container("a").observed()
    assert at_level(report, LEVEL_DEVICES) == report
    assert at_level(report, LEVEL_DEVICES - 1).devices_used is None
    after(it, UNUSED_AFTER_S)
    assert it.world.replay() == it.world.log
    loaded = State.load(it.world.engine.state.dump())
    assert loaded.jobs[A] == it.world.job("a")
    assert loaded.jobs[A].uses == 1
