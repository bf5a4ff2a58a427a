"""Pinning over HTTP and from the inbox, and the order of the queue by priority."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_bed import RECORD, Api, run


async def until(it: Api, key: str, said: Callable[[Any], bool]) -> Any:
    async with asyncio.timeout(30.0):
        while True:
            job = (await it.get(f"/v1/jobs/{key}")).json
            if said(job):
                return job
            await asyncio.sleep(0.02)


def test_a_pinned_job_is_kept_to_its_size_and_an_unpinned_one_grows_again(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        await it.post("/v1/jobs", {**RECORD, "name": "first", "optional_gpus": [4]})
        await it.reaches("first", "running")
        await it.post("/v1/jobs", {**RECORD, "epochs": 100})
        pinned = await it.post("/v1/jobs/job/pin", {"size": 2}, Reshape_User="ada")
        assert (pinned.code, pinned.json["pinned"]) == (200, 2)
        await it.post("/v1/jobs/first/cancel")
        running = await it.reaches("job", "running")
        assert running["size"] == 2
        events = (await it.get("/v1/jobs/job/history")).json["events"]
        assert [e["text"] for e in events if e["kind"] == "pinned"] == ["fixed at 2 GPUs, by ada"]
        bigger = await it.post("/v1/jobs/job/pin", {"size": 4})
        assert bigger.json["pinned"] == 4
        await until(it, "job", lambda job: job["size"] == 4 and job["state"] == "running")
        decided = (await it.get("/v1/jobs/job/decisions")).json["decisions"]
        assert decided[-1]["reason_code"] == "grows-to-pin"
        free = await it.post("/v1/jobs/job/pin", {"size": None})
        assert (free.code, free.json["pinned"]) == (200, None)

    run(tmp_path, test)


def test_a_job_that_is_kept_to_one_gpu_says_so_in_words(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        await it.post("/v1/jobs", {**RECORD, "optional_gpus": [1, 2]})
        await it.post("/v1/jobs/job/pin", {"size": 1}, Reshape_User="ada")
        events = (await it.get("/v1/jobs/job/history")).json["events"]
        assert "fixed at 1 GPU, by ada" in [event["text"] for event in events]

    run(tmp_path, test)


@pytest.mark.parametrize("size", [3, 0, -1, "2", 2.0, True, [2]])
def test_a_size_that_the_job_cannot_have_is_refused_with_those_that_it_can(
    tmp_path: Path, size: object
) -> None:
    async def test(it: Api) -> None:
        await it.post("/v1/jobs", RECORD)
        answer = await it.post("/v1/jobs/job/pin", {"size": size})
        assert (answer.code, answer.json["code"], answer.json["path"]) == (422, "rejected", "size")
        assert answer.json["hint"] == "use one of: 2, 4; to allow all: reshape unpin"
        assert (await it.get("/v1/jobs/job")).json["pinned"] is None

    run(tmp_path, test)


@pytest.mark.parametrize("body", ["", "7", "{}", '{"sise": 2}', '{"size": 2, "more": 1}', "{"])
def test_a_body_that_says_no_size_is_a_bad_request(tmp_path: Path, body: str) -> None:
    async def test(it: Api) -> None:
        await it.post("/v1/jobs", RECORD)
        answer = await it.post("/v1/jobs/job/pin", body)
        assert (answer.code, answer.json["path"]) == (400, "body")

    run(tmp_path, test)


def test_a_job_that_is_not_there_or_has_ended_cannot_be_pinned(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        nobody = await it.post("/v1/jobs/nobody/pin", {"size": 2})
        assert (nobody.code, nobody.json["code"]) == (404, "not-found")
        await it.post("/v1/jobs", RECORD)
        await it.post("/v1/jobs/job/cancel")
        await it.reaches("job", "cancelled")
        ended = await it.post("/v1/jobs/job/pin", {"size": 2})
        assert (ended.code, ended.json["code"]) == (409, "conflict")
        assert "cancelled and cannot be pinned" in ended.json["message"]

    run(tmp_path, test)


def test_of_two_queued_jobs_the_one_of_higher_priority_gets_the_gpus_first(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        four = {**RECORD, "optional_gpus": [4]}
        await it.post("/v1/jobs", {**four, "name": "first"})
        await it.reaches("first", "running")
        await it.post("/v1/jobs", {**four, "name": "early"})
        await it.post("/v1/jobs", {**four, "name": "urgent", "priority": 5})
        await it.post("/v1/jobs/first/cancel")
        await it.reaches("urgent", "running")
        assert (await it.get("/v1/jobs/early")).json["state"] == "submitted"
        await it.post("/v1/jobs/urgent/cancel")
        await it.reaches("early", "running")

    run(tmp_path, test)
