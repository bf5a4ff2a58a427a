"""A policy that returns nonsense, or raises anything, has failed; the controller goes on."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from reshape_controller.core.model import HostId, JobId, Stage
from reshape_controller.core.plan import Option, Plan, Snapshot, Target
from reshape_controller.scheduling.planner import ERROR_CHARS_MAX, PLAN_BYTES_MAX, Planner
from reshape_sidecar import codec
from tests.support.world import World

JOB, HOST = JobId("a"), HostId("host-0")


def to(job: Any = JOB, size: Any = 2, host: Any = HOST, shares: Any = ()) -> Plan:
    return Plan((Target(job, size, host, shares),), "starts", "t", JOB)


def nested(depth: int) -> Any:
    found: Any = ()
    for _ in range(depth):
        found = (found,)
    return found


NONSENSE: dict[str, Any] = {
    "nothing": None,
    "a number": 3,
    "a text": "plan",
    "the class": Plan,
    "a generator": iter(()),
    "targets are none": replace(to(), targets=None),  # type: ignore[arg-type]
    "targets are a generator": replace(to(), targets=iter(())),  # type: ignore[arg-type]
    "a target is a text": replace(to(), targets=("x",)),  # type: ignore[arg-type]
    "a size is a float": to(size=2.0),
    "a size is no number": to(size=math.nan),
    "a size is huge": to(size=10**30),
    "a job is a list": to(job=[]),
    "a host is a list": to(host=[]),
    "shares are a text": to(shares="zz"),
    "shares are numbers": to(shares=(1,)),
    "a text is bytes": replace(to(), text=b"x"),  # type: ignore[arg-type]
    "a text is half a character": replace(to(), text="\ud800"),
    "a text is endless": replace(to(), text="x" * PLAN_BYTES_MAX),
    "the reason is endless": replace(to(), reason_code="x" * PLAN_BYTES_MAX),
    "the options are endless": replace(to(), options=(Option(to().targets),) * 20_000),
    "the options are numbers": replace(to(), options=(1, 2)),  # type: ignore[arg-type]
    "the notes are numbers": replace(to(), notes=(1,)),  # type: ignore[arg-type]
    "the notes are deep": replace(to(), notes=nested(100_000)),
    "the time is a text": Plan(wake_at_s="soon"),  # type: ignore[arg-type]
    "the time is none that is": Plan(wake_at_s=math.nan),
    "the time is beyond all": Plan(wake_at_s=10**400),
    "the job is a number": replace(to(), about=3),  # type: ignore[arg-type]
}


class Odd:
    """Returns ``plan``, or raises it."""

    name = "odd"

    def __init__(self, plan: Any) -> None:
        self.plan = plan

    def decide(self, snapshot: Snapshot) -> Plan:
        if isinstance(self.plan, BaseException):
            raise self.plan
        return self.plan  # type: ignore[no-any-return]


def decided(plan: Any) -> str:
    """Why there is no plan, as the log has it."""
    world = World().boot(4)
    world.submit("a", 1, 2, 4)
    before = world.engine.state.dump()
    planner = Planner(Odd(plan))
    done = planner.decide(world.engine, world.now_s)
    assert planner.failure is not None
    assert done.plan.targets == ()
    assert done.step.commands == ()
    assert not world.engine.wants_plan()
    assert world.job("a").stage is Stage.NONE
    assert len(codec.dumps(done.plan).encode()) < 4 * ERROR_CHARS_MAX
    assert len(world.engine.state.dump()) == len(before)
    return done.plan.text


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_no_plan(name: str) -> None:
    assert decided(NONSENSE[name])


class Half(Exception):
    def __repr__(self) -> str:
        return "\ud800"


class Unspeakable(Exception):
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SystemExit(3), "it asks this program to end: SystemExit(3)"),
        (Unspeakable(), "the policy failed: Unspeakable"),
        (ValueError("x" * 1_000_000), "xxx"),
        (RecursionError("deep"), "deep"),
        (MemoryError(), "MemoryError()"),
        (Half(), "\\ud800"),
    ],
)
def test_any_error_of_a_policy_is_told(error: BaseException, text: str) -> None:
    assert text in decided(error)
