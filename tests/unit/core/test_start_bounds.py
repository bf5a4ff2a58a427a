"""A start is bounded by its silence, and never for its age alone unless the record says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.limits import LOCAL, START_ALERT_S, Limits
from reshape_controller.core.model import DeadlineKind, HostId, JobId, JobState, Stage
from reshape_sidecar.wire import Saves
from tests.support.world import World

A = JobId("a")
HOUR = 3600.0


def preparing(limits: Limits = LOCAL, **fields: object) -> World:
    """Four GPUs, and job ``a``, which has them and makes no first step."""
    found = World(limits=limits).boot(4)
    found.new_containers[A] = {"hangs": True}
    found.submit("a", 2, 4, **fields)
    found.plan(("a", 4))
    assert found.job("a").stage is Stage.STARTING
    return found


def works(found: World, seconds: float, silent_s: float = 0.0) -> None:
    """Let the start go on for a time, at whose end its SideCar says how long it has been silent."""
    for _ in range(int(seconds // 60)):
        if found.job("a").stage is not Stage.STARTING:
            return
        found.container("a").silent_s = silent_s
        found.report(found.container("a"))
        found.wait(60.0)


def falls_silent(found: World, silent_s: float) -> None:
    """Let the start be silent from now on, for a time."""
    for minute in range(int(silent_s // 60) + 1):
        if found.job("a").stage is not Stage.STARTING:
            return
        found.container("a").silent_s = 60.0 * minute
        found.report(found.container("a"))
        found.wait(60.0)


def test_a_start_that_works_for_an_hour_trains_then() -> None:
    found = preparing()
    works(found, HOUR)
    a = found.job("a")
    assert (a.stage, a.failures, a.start_failures) == (Stage.STARTING, 0, ())
    assert "deadline" not in found.kinds
    found.container("a").hangs = False
    found.settle()
    a = found.job("a")
    assert (a.stage, a.starts_since_s, a.late) == (Stage.TRAINING, None, "")


def test_a_silent_start_spends_a_retry_strikes_no_size_and_names_the_field() -> None:
    found = preparing(retries=2)
    for failures in (1, 2):
        works(found, HOUR)
        assert found.job("a").failures == failures - 1
        falls_silent(found, LOCAL.start_timeout_s)
        a = found.job("a")
        assert (a.state, a.failures, a.struck) == (JobState.SUBMITTED, failures, ())
        assert "no sign of work for 1800 s" in a.reason
        assert "start_timeout_s" in a.reason
        found.wait(400.0)
        found.plan(("a", 4))
    falls_silent(found, LOCAL.start_timeout_s)
    a = found.job("a")
    assert (a.state, a.struck) == (JobState.FAILED, ())
    assert "no retries left (retries: 2)" in a.reason


def test_at_a_new_size_too_a_silent_start_spends_a_retry_and_strikes_no_size() -> None:
    found = World().boot(4)
    found.running("a", 2, 2, 4, retries=0)
    found.train("a", 10)
    found.container("a").saved_step = 10
    found.container("a").hangs = True
    found.plan(("a", 4))
    falls_silent(found, LOCAL.start_timeout_s)
    a = found.job("a")
    assert (a.state, a.failures, a.struck) == (JobState.HALTED, 1, ())


@pytest.mark.parametrize(("own_s", "ends_after_s"), [(600.0, 600.0), (None, 1800.0), (0.0, None)])
def test_the_records_bound_replaces_the_daemons_and_zero_is_none(
    own_s: float | None, ends_after_s: float | None
) -> None:
    found = preparing(start_timeout_s=own_s)
    falls_silent(found, 5 * HOUR)
    failed = found.entries("start-failed")
    assert bool(failed) is (ends_after_s is not None)
    if failed and ends_after_s is not None:
        assert ends_after_s <= failed[0].at_s <= ends_after_s + 120.0


def test_a_daemon_without_a_bound_ends_no_silent_start() -> None:
    found = preparing(replace(LOCAL, start_timeout_s=0.0))
    falls_silent(found, 5 * HOUR)
    assert found.job("a").stage is Stage.STARTING


def test_a_start_that_works_for_two_hours_is_an_alert_and_goes_on() -> None:
    found = preparing()
    works(found, START_ALERT_S - 60.0)
    assert not found.job("a").late
    works(found, HOUR)
    a = found.job("a")
    assert (a.stage, a.late) == (Stage.STARTING, "no first training step for 2 h")
    assert a.reason == "starts on 4 GPUs; no first training step for 2 h"
    assert [entry.at_s for entry in found.entries("late")] == [START_ALERT_S]
    works(found, 20 * HOUR)
    assert len(found.entries("late")) == 1
    found.container("a").hangs = False
    found.settle()
    assert found.job("a").late == ""


def test_a_limit_ends_a_start_that_spins() -> None:
    found = preparing(start_limit_s=HOUR, retries=0)
    works(found, HOUR + 60.0)
    a = found.job("a")
    assert (a.state, a.struck) == (JobState.FAILED, ())
    assert "no first training step within its start_limit_s of 3600 s" in a.reason


def test_a_sidecar_that_is_silent_itself_is_no_silent_start() -> None:
    found = preparing()
    found.container("a").reachable = False
    found.event(ev.SideCarFellSilent(A, 1))
    found.wait(5 * HOUR)
    assert found.job("a").stage is Stage.STARTING
    found.container("a").reachable = True
    works(found, HOUR)
    assert found.job("a").stage is Stage.STARTING


def test_a_sidecar_of_the_release_before_has_the_time_in_place_of_the_silence() -> None:
    found = preparing()
    found.wait(LOCAL.start_timeout_s - 1.0)
    assert found.job("a").stage is Stage.STARTING
    found.wait(2.0)
    assert found.kinds.count("start-failed") == 1


@pytest.mark.parametrize("request_", ["pause", "drain"])
def test_a_person_need_not_wait_for_the_end_of_a_preparation(request_: str) -> None:
    found = preparing()
    works(found, HOUR)
    if request_ == "pause":
        found.event(ev.HaltRequested(A, "ann"))
    else:
        found.event(ev.HostDrained(HostId("host-0"), "op"))
    a = found.job("a")
    state = JobState.HALTED if request_ == "pause" else JobState.SUBMITTED
    assert (a.state, a.stage, a.failures, a.steps_lost) == (state, Stage.NONE, 0, 0)
    assert found.gpu_states() == ["idle"] * 4


def test_a_newcomer_gets_the_gpus_of_a_donor_that_was_paused_while_it_started_again() -> None:
    found = World().boot(4)
    found.running("a", 4, 2, 4)
    found.train("a", 10)
    found.container("a").program = Saves.BOUNDARY
    found.auto = False
    found.submit("b", 2)
    found.plan(("b", 2), ("a", 2))
    found.container("a").hangs = True
    found.settle_until("a", Stage.STARTING)
    found.event(ev.HaltRequested(A, "ann"))
    found.auto = True
    found.settle()
    assert found.job("a").state is JobState.HALTED
    assert (found.job("b").stage, len(found.job("b").gpus)) == (Stage.TRAINING, 2)


def test_a_start_under_way_at_an_upgrade_is_bounded_by_its_silence_from_then_on() -> None:
    found = preparing(replace(LOCAL, start_rules=3))
    deadline = found.job("a").deadline
    assert deadline is not None
    assert deadline.kind is DeadlineKind.FIRST_STEP
    found.wait(100.0)
    found.event(ev.ControllerStarted(2, "test", found.mechanism, LOCAL))
    works(found, HOUR)
    assert found.job("a").stage is Stage.STARTING
    falls_silent(found, LOCAL.start_timeout_s)
    assert found.job("a").failures == 1


def test_a_controllers_restart_neither_ends_a_start_nor_forgets_the_alert() -> None:
    found = preparing(start_limit_s=3 * HOUR)
    works(found, START_ALERT_S + 60.0)
    found.now_s += 10 * HOUR
    found.event(ev.ControllerStarted(2, "test", found.mechanism, LOCAL))
    works(found, 2 * HOUR)
    a = found.job("a")
    assert (a.stage, a.late) == (Stage.STARTING, "no first training step for 2 h")
    assert len(found.entries("late")) == 1
    works(found, HOUR + 60.0)
    assert found.job("a").failures == 1


def test_the_log_of_a_bounded_start_replays_to_the_same_commands() -> None:
    found = preparing(start_limit_s=3 * HOUR)
    works(found, START_ALERT_S + 60.0)
    falls_silent(found, LOCAL.start_timeout_s)
    assert found.replay() == found.log
