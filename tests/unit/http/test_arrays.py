"""Arrays and trials over HTTP: all members or none, and what would happen to a record."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from reshape_controller.core.record import LogRecord
from reshape_controller.store.sqlite.store import SqliteStore
from tests.support.http_bed import RECORD, Api, api

MEMBERS = 500
SUBMITTED_S = 3.0
"""On a free machine; a busy one gets more time, because CPU time is compared."""


async def log_of(folder: Path) -> list[LogRecord]:
    store = SqliteStore(folder / "store.sqlite")
    await store.open()
    try:
        return [record async for record in store.read(0)]
    finally:
        await store.close()


def names_of(records: list[LogRecord]) -> list[list[str]]:
    """The names of the jobs that each record submits, without those that submit none."""
    found = [[e.spec.name for e in r.events if hasattr(e, "spec")] for r in records]
    return [names for names in found if names]


def test_five_hundred_members_are_in_one_append_within_three_seconds(tmp_path: Path) -> None:
    array = {"lr": list(range(MEMBERS // 5)), "seed": list(range(5))}

    async def test() -> None:
        async with api(tmp_path) as it:
            begin_s = time.process_time()
            answer = await it.post("/v1/arrays", {**RECORD, "name": "a", "array": array})
            took_s = time.process_time() - begin_s
            assert answer.code == 201, answer.body
            ids = answer.json["jobs"]
            assert len(set(ids)) == MEMBERS
            assert took_s < SUBMITTED_S
            page = (await it.get("/v1/jobs?limit=1000&name=a-*")).json
            assert [job["id"] for job in page["jobs"]] == ids

    asyncio.run(test())
    (names,) = names_of(asyncio.run(log_of(tmp_path)))
    assert names == [f"a-{number}" for number in range(MEMBERS)]


def test_an_array_with_a_member_that_is_refused_submits_none(tmp_path: Path) -> None:
    array = {"lr": [1, 2, 3]}

    async def refused(it: Api, record: dict[str, Any], path: str) -> None:
        answer = await it.post("/v1/arrays", record)
        assert (answer.code, answer.json["errors"][0]["path"]) == (422, path)
        jobs = (await it.get("/v1/jobs")).json["jobs"]
        assert [job["name"] for job in jobs if job["state"] != "cancelled"] in ([], ["a-2"])

    async def test() -> None:
        async with api(tmp_path) as it:
            await refused(it, {**RECORD, "array": {"lr": []}}, "array.lr")
            await refused(it, {**RECORD, "optional_gpus": [64], "array": array}, "optional_gpus[0]")
            one_folder = {**RECORD, "checkpoints": "/data/x", "array": array}
            await refused(it, one_folder, "checkpoints")
            await it.post("/v1/jobs", {**RECORD, "name": "a-2"})
            await refused(it, {**RECORD, "name": "a", "array": array}, "name")
            await it.post("/v1/jobs/a-2/cancel")
            again = await it.post("/v1/arrays", {**RECORD, "name": "b", "array": array})
            assert again.code == 201, "no name stays reserved after a refusal"

    asyncio.run(test())


def test_a_trial_says_what_the_submission_then_does_and_changes_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with api(tmp_path) as it:
            record = {**RECORD, "optional_gpus": [4], "steps": 100, "max_wait_s": 1e6}
            before = (await it.get("/v1/status")).json["seq"]
            first = (await it.post("/v1/trials", {**record, "name": "first"})).json
            assert (first["starts"], first["size"], first["host"]) == (True, 4, "local")
            assert (await it.get("/v1/jobs")).json["total"] == 0
            assert (await it.get("/v1/status")).json["seq"] == before
            await it.post("/v1/jobs", {**record, "name": "first"})
            await it.reaches("first", "running")
            second = (await it.post("/v1/trials", {**record, "name": "second"})).json
            assert (second["starts"], second["position"]) == (False, 1)
            assert second["predicted_start_at_s"] > it.clock.now_s()
            assert second["predicted_end_at_s"] > second["predicted_start_at_s"]
            taken = await it.post("/v1/trials", {**record, "name": "first"})
            assert (taken.code, taken.json["errors"][0]["path"]) == (422, "name")

    asyncio.run(test())
