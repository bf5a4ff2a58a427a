"""A job's place in the queue and its predicted start and end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.http_bed import RECORD, api


def test_queued_jobs_have_places_and_jobs_of_known_length_an_end(tmp_path: Path) -> None:
    async def test() -> None:
        async with api(tmp_path) as it:
            whole = {**RECORD, "optional_gpus": [4], "steps": 100}
            await it.post("/v1/jobs", {**whole, "name": "first"})
            await it.reaches("first", "running")
            for name, priority in (("late", 0), ("early", 5)):
                record = {**whole, "name": name, "priority": priority, "max_wait_s": 1e6}
                assert (await it.post("/v1/jobs", record)).code == 201
            jobs = {job["name"]: job for job in (await it.get("/v1/jobs")).json["jobs"]}
            assert jobs["first"]["position"] is None
            assert jobs["early"]["position"] == 1
            assert jobs["late"]["position"] == 2
            ends = [jobs[name]["predicted_end_at_s"] for name in ("first", "early", "late")]
            assert ends == sorted(ends)
            starts = [jobs[name]["predicted_start_at_s"] for name in ("early", "late")]
            assert starts == sorted(starts)
            assert starts[0] >= ends[0] - 1.0
            one = (await it.get("/v1/jobs/late")).json
            assert one["position"] == 2
            await it.post("/v1/jobs/early/cancel")
            assert (await it.get("/v1/jobs/late")).json["position"] in (1, 2)

    asyncio.run(test())


@pytest.mark.parametrize("pattern", ["a b", "[a]", "%25", ""])
def test_a_pattern_that_is_none_is_refused(tmp_path: Path, pattern: str) -> None:
    async def test() -> None:
        async with api(tmp_path) as it:
            refused = await it.get(f"/v1/jobs?name={pattern.replace(' ', '%20')}")
            assert (refused.code, refused.json["path"]) == (400, "query name")

    asyncio.run(test())
