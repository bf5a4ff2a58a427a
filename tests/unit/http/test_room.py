"""One identity that asks for much leaves the others their answers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from reshape_controller.core.plan import Plan, Snapshot
from reshape_controller.http import room as bounds
from reshape_controller.http.errors import ApiError
from reshape_controller.live import trial_process
from reshape_controller.live.trial_process import TooManyTrials, TrialFailed, TrialRuns
from tests.support.http_bed import RECORD, Answer, Api, run
from tests.support.world import World

QUEUED = 400
SMALL_S = 1.0
SMALL = 30
SLOW_MAX = 3
"""On a machine that other programs use too; without the bounds nearly all are slow."""
HOLD_S = 0.1
"""Longest turn of the event loop, in processor time."""


async def fill(it: Api, count: int) -> None:
    """Queue jobs, as arrays."""
    for part in range(0, count, 200):
        values = list(range(part, part + 200))
        record = {**RECORD, "name": f"a{part}", "array": {"SEED": values}}
        answer = await it.post("/v1/arrays", record)
        assert answer.code == 201, answer.body


async def slow_ones(it: Api) -> tuple[int, float]:
    """Ask small things; return how many took too long, and the longest time."""
    took = []
    for _ in range(SMALL):
        began_s = time.monotonic()
        assert (await it.get("/v1/status")).code == 200
        took.append(time.monotonic() - began_s)
    return sum(each > SMALL_S for each in took), max(took)


Ask = Callable[[Api], Coroutine[Any, Any, Answer]]


async def watch_holds(holds: list[float]) -> None:
    """Note the processor time of each turn of the event loop, whatever other programs do."""
    while True:
        began_s = time.thread_time()
        await asyncio.sleep(0)
        holds.append(time.thread_time() - began_s)


def flooded(tmp_path: Path, ask: Ask, times: int) -> list[int]:
    """Return the codes of a flood; fail if small requests wait for it."""
    codes: list[int] = []

    async def test(it: Api) -> None:
        await fill(it, QUEUED)
        gc.collect()
        gc.freeze()  # collecting what the tests before have left is no turn of the daemon
        holds: list[float] = []
        flood = [asyncio.create_task(ask(it)) for _ in range(times)]
        await asyncio.sleep(0.1)
        watching = asyncio.create_task(watch_holds(holds))
        slow, longest_s = await slow_ones(it)
        assert slow <= SLOW_MAX, f"{slow} of {SMALL}, the longest {longest_s:.1f} s"
        codes.extend([answer.code for answer in await asyncio.gather(*flood)])
        watching.cancel()
        assert max(holds) < HOLD_S

    try:
        run(tmp_path, test)
    finally:
        gc.unfreeze()
    return codes


def test_trials_hold_nothing_up_and_more_than_a_few_are_refused(tmp_path: Path) -> None:
    record = {**RECORD, "name": "tried"}
    codes = flooded(tmp_path, lambda it: it.post("/v1/trials", record), 40)
    assert sorted(codes) == [*[200] * trial_process.OWN_MAX, *[429] * 36]


def test_long_lists_are_made_in_pieces_and_in_turns(tmp_path: Path) -> None:
    codes = flooded(tmp_path, lambda it: it.get("/v1/jobs?limit=1000"), 20)
    assert codes == [200] * 20


@pytest.mark.parametrize("path", ["/v1/overview?lines=1000", "/v1/events?after=0&wait_s=0"])
def test_what_shows_all_jobs_is_made_in_pieces_and_in_turns(tmp_path: Path, path: str) -> None:
    codes = flooded(tmp_path, lambda it: it.get(path), 20)
    assert codes == [200] * 20


class Sleepy:
    """A policy that takes long."""

    name = "sleepy"

    def decide(self, snapshot: Snapshot) -> Plan:
        time.sleep(60)
        return Plan()


class Ends:
    """A policy whose process ends."""

    name = "ends"

    def decide(self, snapshot: Snapshot) -> Plan:
        os.write(2, b"ended by the policy")
        os._exit(3)


def asked(policy: Any, times: int = 1) -> list[BaseException | object]:
    world = World().boot(4)
    world.submit("one", 1)
    state = world.engine.state
    spec = world.job("one").spec

    async def inside() -> list[BaseException | object]:
        runs = TrialRuns()
        asks = [runs.run("ada", state, policy, spec, state.now_s) for _ in range(times)]
        return list(await asyncio.gather(*asks, return_exceptions=True))

    return asyncio.run(inside())


def test_a_trial_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_process, "TRIAL_S", 2.0)
    began_s = time.monotonic()
    (found,) = asked(Sleepy())
    assert isinstance(found, TrialFailed)
    assert "has not decided" in str(found)
    assert time.monotonic() - began_s < 20


def test_a_trial_whose_process_ends_says_so() -> None:
    (found,) = asked(Ends())
    assert isinstance(found, TrialFailed)
    assert "ended by the policy" in str(found)


def test_a_policy_that_cannot_be_sent_is_named() -> None:
    class Local(Sleepy):
        name = "local"

    (found,) = asked(Local())
    assert isinstance(found, TrialFailed)
    assert "policy local" in str(found)


def test_an_identity_has_a_few_trials_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_process, "TRIAL_S", 0.5)
    found = asked(Sleepy(), 6)
    assert sum(isinstance(each, TooManyTrials) for each in found) == 6 - trial_process.OWN_MAX


def test_turns_are_one_at_a_time_for_each_identity_and_two_in_all() -> None:
    async def inside() -> None:
        room, running, most = bounds.Room(100), [], []

        async def work(name: str) -> None:
            async with room.turn(name):
                running.append(name)
                most.append((len(running), running.count(name)))
                await asyncio.sleep(0.01)
                running.remove(name)

        await asyncio.gather(*[work(name) for name in "aaaaabbbbbccc"])
        assert max(all_of for all_of, _ in most) == bounds.TURNS_MAX
        assert max(own for _, own in most) == 1

    asyncio.run(inside())


@pytest.mark.parametrize("identities", [5, 8])
def test_several_greedy_identities_leave_room_for_one_more(identities: int) -> None:
    room = bounds.Room(10_000)
    for number in range(identities):
        for _ in range(bounds.IDENTITY_HELD_MAX + 1):
            try:
                room.hold(f"greedy-{number}").__enter__()
            except ApiError:
                break
    with room.hold("another"):
        assert room.held <= bounds.HELD_MAX


def test_a_worker_holds_four_polls_and_leaves_room_for_the_others() -> None:
    room = bounds.Room(64)
    with contextlib.ExitStack() as held:
        for _ in range(bounds.WORKER_HELD_MAX):
            assert held.enter_context(room.hold_poll("job-1/1/0"))
        with pytest.raises(ApiError):
            held.enter_context(room.hold_poll("job-1/1/0"))
        for number in range(48):
            assert held.enter_context(room.hold_poll(f"job-{number + 2}/1/0"))
        assert not held.enter_context(room.hold_poll("job-99/1/0")), (
            "its report counts all the same"
        )
        room.enter("another user")
    assert held.enter_context(room.hold_poll("job-99/1/0"))
