"""What a job has lost: the known part, and whether that is all."""

from __future__ import annotations

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.model import JobId, Stage
from reshape_sidecar.wire import Reached, Saves
from tests.support.world import HOST, World

A = JobId("a")


def training(steps: int, *, program: Saves | None = None, hosts: int = 1) -> World:
    """Job ``a`` trains on four GPUs and has reported some steps."""
    found = World().boot(4, hosts=hosts)
    if program is not None:
        found.new_containers[A] = {"program": program}
    found.running("a", 4, 2, 4, may_restart=True, retries=9)
    found.train("a", steps)
    return found


def lost(found: World) -> tuple[int, bool]:
    """The known part, and whether it is all."""
    return found.job("a").steps_lost, found.job("a").all_loss_known


@pytest.mark.parametrize(("steps", "known"), [(0, False), (484, True)])
def test_a_stop_loses_what_was_reported_or_what_nobody_knows(steps: int, known: bool) -> None:
    found = training(steps, program=Saves.NEVER)
    assert lost(found) == (0, True)
    found.submit("b", 2)
    found.plan(("b", 2), ("a", 2))
    assert lost(found) == (steps, known)
    assert ("the lost work is unknown" in "".join(found.texts)) is not known


@pytest.mark.parametrize(("steps", "known"), [(0, False), (484, True)])
def test_so_does_a_crash(steps: int, known: bool) -> None:
    found = training(steps)
    found.crash("a")
    assert lost(found) == (steps, known)


def test_an_unknown_loss_stays_unknown() -> None:
    found = training(0)
    found.crash("a")
    found.train("a", 20)
    found.crash("a")
    assert lost(found) == (20, False)


def test_a_program_that_saves_at_a_boundary_before_it_made_a_step_loses_none() -> None:
    found = training(0)
    found.event(ev.HaltRequested(A, "ann"))
    assert lost(found) == (0, True)


def test_a_program_that_left_with_word_of_a_save_has_lost_none() -> None:
    found = training(0, program=Saves.NEVER)
    found.container("a").saved_step, found.container("a").says_saved = 20, True
    found.event(ev.HostDrained(HOST, "ann"))
    found.wait(120.0)
    assert lost(found) == (0, True)


def relaunched(found: World, reached: Reached | None) -> None:
    """The next attempt comes up, and tells what it has read."""
    found.new_containers[A] = {"reached": reached}
    found.wait(301.0)
    host = next(host.id for host in found.engine.state.hosts.values() if host.present)
    found.plan(("a", 4), host=host)
    assert found.job("a").stage is Stage.TRAINING


@pytest.mark.parametrize(
    ("reached", "after"),
    [
        (Reached(1, 103), (103, True)),
        (Reached(1, 90), (100, True)),
        (None, (100, False)),
        (Reached(7, 500), (100, False)),
    ],
    ids=["more steps", "an older word", "no word", "a word of another attempt"],
)
def test_the_next_attempt_tells_how_far_one_came_whose_container_died(
    reached: Reached | None, after: tuple[int, bool]
) -> None:
    found = training(100)
    found.kill_container("a")
    assert lost(found) == (100, False)
    relaunched(found, reached)
    assert lost(found) == after
    found.kill_container("a")
    lost_to = found.job("a").lost_to
    assert lost_to is not None
    assert lost_to.attempt == 2
    assert found.replay() == found.log


def test_after_a_dead_host_the_loss_is_at_least_what_is_known() -> None:
    found = training(100, hosts=2)
    found.event(ev.HostFellSilent(HOST, "no answer"))
    assert lost(found) == (100, False)
    relaunched(found, Reached(1, 103))
    assert lost(found) == (103, False)


def test_a_suspended_container_tells_it_in_the_same_attempt() -> None:
    found = training(100)
    found.suspend("a")
    assert lost(found) == (100, False)
    found.admit("a")
    found.container("a").reached = Reached(1, 102)
    found.settle()
    found.plan(("a", 4))
    assert lost(found) == (100, False) or lost(found) == (102, True)


def test_what_was_said_of_a_stop_names_a_step_that_the_program_saved_by_itself() -> None:
    found = training(0, program=Saves.NEVER)
    found.container("a").saved_step = 20
    found.event(ev.HostDrained(HOST, "ann"))
    found.wait(120.0)
    assert lost(found) == (0, False)
    assert "step 20 saved; the script reported no step, so the lost work is unknown" in found.texts


def test_the_time_of_lost_steps_is_repeated() -> None:
    found = training(0)
    found.container("a").seconds_per_step = 0.5
    found.train("a", 484)
    found.crash("a")
    assert found.job("a").repeated_gpu_s == 484 * 0.5 * 4


def test_a_program_that_cannot_save_and_reports_no_steps_repeats_all_since_its_start() -> None:
    found = training(0, program=Saves.NEVER)
    found.wait(343.0)
    found.event(ev.HostFellSilent(HOST, "it is dead"))
    assert found.job("a").repeated_gpu_s == 343.0 * 4
    assert lost(found) == (0, False)


def test_what_is_saved_is_not_repeated() -> None:
    found = training(484)
    found.submit("b", 2)
    found.plan(("b", 2), ("a", 2))
    assert found.job("a").repeated_gpu_s == 0.0
