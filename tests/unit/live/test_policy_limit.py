"""A policy that hangs has failed: the controller goes on, and asks it again after a pause."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable

import pytest

from reshape_controller.core.plan import Plan, Snapshot
from reshape_controller.live import policy_limit
from reshape_controller.live.loop import TimedPlanner
from reshape_controller.live.policy_limit import DecidesTooLong, PolicyLimit
from tests.support.world import World


def spins() -> None:
    while True:
        pass


def sleeps() -> None:
    time.sleep(60)


def takes_no_error() -> None:
    while True:
        with contextlib.suppress(Exception):
            time.sleep(60)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_limit, "DECIDE_MAX_S", 0.1)
    monkeypatch.setattr(policy_limit, "LOOK_EVERY_S", 0.1)


@pytest.mark.parametrize("hangs", [spins, sleeps, takes_no_error])
def test_a_call_that_hangs_ends_and_is_not_repeated_at_once(hangs: Callable[[], None]) -> None:
    limit, began_s = PolicyLimit(), time.monotonic()
    with pytest.raises(DecidesTooLong, match="has not decided within"):
        limit.of(hangs)
    with pytest.raises(DecidesTooLong, match="has a pause"):
        limit.of(hangs)
    assert time.monotonic() - began_s < 5.0


def test_a_call_that_ended_in_time_is_not_interrupted_later() -> None:
    assert PolicyLimit().of(lambda: 3) == 3
    time.sleep(2 * policy_limit.LOOK_EVERY_S + 0.2)
    signal.raise_signal(signal.SIGVTALRM)


def test_a_policy_that_hangs_has_failed_and_its_job_waits() -> None:
    class Hangs:
        name = "hangs"

        def decide(self, snapshot: Snapshot) -> Plan:
            spins()
            raise AssertionError

    world = World().boot(4)
    world.submit("a", 1, 2)
    planner = TimedPlanner(Hangs())
    done = planner.decide(world.engine, world.now_s)
    assert "has not decided within 0.1 s" in done.plan.text
    assert not world.engine.wants_plan()
    assert world.engine.next_deadline_s() == world.now_s + 1.0, "it is asked again"
