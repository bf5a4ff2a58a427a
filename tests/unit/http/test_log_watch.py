"""Requests that wait for a log share one look at it, and wake once it has grown."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from reshape_controller.http import log_watch
from reshape_controller.http import room as bounds
from reshape_controller.http.log_watch import LogWatch
from tests.support.http_bed import RECORD, Api, run

WAITS = 500


def test_many_waits_cost_as_many_looks_as_one() -> None:
    looks = 0
    version = 1

    def look() -> int:
        nonlocal looks
        looks += 1
        return version

    async def inside() -> None:
        nonlocal version
        watch = LogWatch()
        waits = [asyncio.create_task(watch.changes("log", look, 1, 20.0)) for _ in range(WAITS)]
        await asyncio.sleep(5 * log_watch.LOOK_EVERY_S)
        assert not any(each.done() for each in waits)
        version = 2
        began_s = time.monotonic()
        await asyncio.gather(*waits)
        assert time.monotonic() - began_s < 3
        assert looks < 20
        assert not watch._awaited

    asyncio.run(inside())


def test_a_change_before_the_wait_is_not_missed() -> None:
    async def inside() -> None:
        watch = LogWatch()
        first = asyncio.create_task(watch.changes("log", lambda: "new", "old", 20.0))
        await asyncio.wait_for(first, 5)
        slow = asyncio.create_task(watch.changes("log", lambda: "a", "a", 20.0))
        await asyncio.sleep(0)
        await asyncio.wait_for(watch.changes("log", lambda: "a", "before", 20.0), 1)
        slow.cancel()

    asyncio.run(inside())


def test_one_identity_waits_for_a_few_logs_and_others_get_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "HELD_MAX", 10)

    async def test(it: Api) -> None:
        job = (await it.post("/v1/jobs", RECORD)).json["id"]
        path = f"/v1/jobs/{job}/logs?wait_s=2&offset=0"
        waits = [asyncio.create_task(it.get(path)) for _ in range(9)]
        await asyncio.sleep(0.5)
        assert it.context.room.held == 5, "half of what there is"
        began_s = time.monotonic()
        assert (await it.get("/v1/jobs")).code == 200
        assert time.monotonic() - began_s < 1
        codes = sorted([(await each).code for each in waits])
        assert codes == [*[200] * 5, *[429] * 4]
        assert it.context.room.held == 0

    run(tmp_path, test)
