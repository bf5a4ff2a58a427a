"""GET /v1/overview counts GPUs and jobs, and shows the queue, runs and failures."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from reshape_controller.access.identities import Identities
from reshape_controller.access.identity import Role
from reshape_controller.access.token_file import NamedToken, TokenFile, digest
from reshape_controller.core.model import JobId, JobState
from reshape_gpu.overview import FailureLine, JobLine
from reshape_sidecar.wire import Phase
from tests.support.http_bed import DEADLINE_S, RECORD, TOKEN, Api, run


async def submit(it: Api, name: str, token: str = TOKEN, **more: Any) -> str:
    answer = await it.ask("POST", "/v1/jobs", RECORD | {"name": name} | more, token=token)
    assert answer.code == 201, answer.body
    return str(answer.json["id"])


async def becomes(it: Api, token: str = TOKEN, **counts: int) -> Any:
    """Wait until the overview has these counts."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = (await it.ask("GET", "/v1/overview", token=token)).json
            if all(found[name] == count for name, count in counts.items()):
                return found
            await asyncio.sleep(0.02)


async def fails(it: Api, job: str) -> None:
    """Let a job's program fail as it runs."""
    await it.reaches(job, "running")
    car = it.launcher.job(job)
    car.observed = replace(car.observed, phase=Phase.CRASHED, exit_code=1, error="no such layer")


def test_gpus_and_jobs_are_counted_and_the_queue_has_positions_and_reasons(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        await submit(it, "first", optional_gpus=[4])
        await it.reaches("first", "running")
        await submit(it, "second", optional_gpus=[4])
        await submit(it, "third", optional_gpus=[4])
        found = await becomes(it, running=1, queued=2)
        assert found["gpus"]["in_use"] == 4
        assert found["gpus"]["idle"] == 0
        assert [job["name"] for job in found["runs"]] == ["first"]
        assert [job["name"] for job in found["queue"]] == ["second", "third"]
        assert [job["position"] for job in found["queue"]] == [1, 2]
        assert all(job["reason"] for job in found["queue"])
        few = (await it.get("/v1/overview?lines=1")).json
        assert [job["name"] for job in few["queue"]] == ["second"]
        assert few["queued"] == 2

    run(tmp_path, test)


def test_the_newest_completed_jobs_are_shown(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        await becomes(it, running=0)
        for name in ("first", "second"):
            job = await submit(it, name, optional_gpus=[2])
            await it.reaches(job, "running")
            car = it.launcher.job(job)
            car.observed = replace(car.observed, phase=Phase.FINISHED, exit_code=0)
            await it.reaches(job, "completed")
        found = await becomes(it, running=0)
        assert [line["name"] for line in found["completions"]] == ["second", "first"]
        assert found["completions"][0]["reason"] == "training finished"
        it.context.completions.__init__(JobState.COMPLETED)  # type: ignore[misc]  # as restarted
        assert (await becomes(it, running=0))["completions"] == found["completions"]

    run(tmp_path, test)


async def overtakes(it: Api, tokens: tuple[str, str] = (TOKEN, TOKEN)) -> None:
    """Let ``third`` start before ``second``, which needs more GPUs than are idle."""
    await submit(it, "first", tokens[0], optional_gpus=[2])
    await it.reaches("first", "running")
    await submit(it, "second", tokens[0], optional_gpus=[4])
    await becomes(it, queued=1)
    await submit(it, "third", tokens[1], optional_gpus=[2])
    await becomes(it, running=2, queued=1)


def test_a_queued_job_names_the_later_one_that_went_ahead_and_why(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        await overtakes(it)
        third = (await it.get("/v1/jobs/third")).json
        (line,) = (await it.get("/v1/overview")).json["queue"]
        found = line["overtaken_by"]
        assert (found["job"], found["name"]) == (third["id"], "third")
        assert found["reason"].startswith("third starts on 2 GPUs")
        assert line["submitted_at_s"] < found["at_s"] <= third["started_at_s"]
        assert (await it.get("/v1/jobs/second")).json["overtaken_by"] == found
        for name in ("first", "third"):
            assert (await it.get(f"/v1/jobs/{name}")).json["overtaken_by"] is None

    run(tmp_path, test)


@pytest.mark.parametrize("users_see_all", [True, False])
def test_the_job_of_another_that_went_ahead_shows_no_reason(
    tmp_path: Path, users_see_all: bool
) -> None:
    given = [
        NamedToken(name, Role.USER, digest(f"{name}s-token".encode()), time.time())
        for name in ("ada", "bob")
    ]
    identities = Identities(
        lambda: TOKEN, lambda: TokenFile(tuple(given)), users_see_all=users_see_all
    )

    async def test(it: Api) -> None:
        await overtakes(it, ("adas-token", "bobs-token"))
        (line,) = (await it.ask("GET", "/v1/overview", token="adas-token")).json["queue"]
        found = line["overtaken_by"]
        if users_see_all:
            assert (found["name"], found["reason"]) == ("third", "")
        else:
            assert found is None
        strange = await it.ask("GET", "/v1/jobs/second", token="bobs-token")
        assert strange.code == 404 or strange.json["overtaken_by"] is None

    run(tmp_path, test, identities)


def test_a_failure_is_counted_and_shown_with_its_reason(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        await becomes(it, failed=0)
        await fails(it, await submit(it, "bad", retries=0))
        found = await becomes(it, failed=1)
        assert [line["name"] for line in found["failures"]] == ["bad"]
        assert found["failures"][0]["reason"]
        assert found["completions"] == []
        it.context.failures.__init__()  # type: ignore[misc]  # as after a restart
        assert (await becomes(it, failed=1))["failures"] == found["failures"]

    run(tmp_path, test)


def test_a_user_who_sees_own_jobs_alone_gets_no_line_of_another(tmp_path: Path) -> None:
    given = [
        NamedToken(name, Role.USER, digest(f"{name}s-token".encode()), time.time())
        for name in ("ada", "bob")
    ]
    identities = Identities(lambda: TOKEN, lambda: TokenFile(tuple(given)), users_see_all=False)

    async def test(it: Api) -> None:
        await fails(it, await submit(it, "bad", "adas-token", retries=0))
        await becomes(it, failed=1)
        await submit(it, "good", "adas-token")
        await becomes(it, running=1)
        found = (await it.ask("GET", "/v1/overview", token="bobs-token")).json
        assert (found["failed"], found["running"], found["queued"]) == (0, 0, 0)
        assert (found["failures"], found["runs"], found["queue"]) == ([], [], [])
        assert found["gpus"]["in_use"] == 4

        loop = it.context.control._loop
        loop.engine.state._unanswered[JobId("bad-1")] = None  # as after a restart
        it.context.control._faults = lambda: ("launch of bad-1: the disk is full",)
        for path, field in (("/v1/overview", "reason"), ("/v1/status", "waits_for")):
            for user in ("bob", "ada"):
                text = (await it.ask("GET", path, token=f"{user}s-token")).json[field]
                assert "SideCars of jobs (1)" in text
                assert "bad-1" not in text
            assert (await it.get(path)).json[field].count("bad-1") == 2

    run(tmp_path, test, identities)


def test_a_line_has_every_value_of_a_job_that_the_page_shows() -> None:
    script = (files("reshape_controller.http") / "page" / "overview.js").read_text()
    shown = set(re.findall(r"\bjob\.(\w+)", script))
    assert "hosts" in shown
    assert shown <= {each.name for line in (JobLine, FailureLine) for each in fields(line)}
