"""``reshape show``: a past run or replay behind the page's API, read-only, on a copy."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPRequest

from reshape_controller.cli.exits import CliError
from reshape_controller.cli.show.runs import Run, chosen, open_copy, runs_in
from reshape_controller.http.app import Server, bind
from reshape_controller.http.past import past_context, past_routes
from reshape_controller.replay.bundle import write_course
from reshape_controller.store.sqlite import file
from tests.support.http_bed import RECORD, Api
from tests.support.http_bed import run as run_daemon
from tests.support.replay_bed import job, scene
from tests.support.replay_bed import run as run_replay

TOKEN = "readers-token"
Ask = Callable[..., Awaitable[Any]]


@pytest.fixture(scope="module")
def replay_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replay")
    given = scene([job(f"job-{number}", 100.0 * number, 400) for number in range(5)])
    for preset in ("adaptive", "default"):
        write_course(folder, preset, run_replay(given, preset, keep=True))
    return folder


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def served(run: Run, copy: Path, test: Callable[[Ask], Awaitable[None]]) -> None:
    """Serve a copy of the run for a test."""

    async def inside() -> None:
        store = await open_copy(run, copy)
        context = await past_context(store, run.logs, TOKEN)
        server = Server(bind("127.0.0.1", 0), context, past_routes())
        server.start()
        client = AsyncHTTPClient(force_instance=True)

        async def ask(path: str, method: str = "GET", token: str = TOKEN) -> Any:
            headers = {"Authorization": f"Bearer {token}"}
            url = f"http://127.0.0.1:{server.port}{path}"
            body = "{}" if method == "POST" else None
            request = HTTPRequest(url, method, headers, body, request_timeout=60.0)
            return await client.fetch(request, raise_error=False)

        try:
            await test(ask)
        finally:
            await server.stop()
            await context.timeline.stop()
            await store.close()

    asyncio.run(inside())


def json_of(answer: Any) -> Any:
    assert answer.code == 200, answer.body
    return json.loads(answer.body)


def test_a_replay_shows_its_jobs_lanes_and_decisions_and_stays_as_it_was(
    replay_folder: Path, tmp_path: Path
) -> None:
    before = digests(replay_folder)

    async def test(ask: Ask) -> None:
        jobs = json_of(await ask("/v1/jobs"))["jobs"]
        assert len(jobs) == 5
        assert {job["state"] for job in jobs} == {"completed"}
        timeline = json_of(await ask("/v1/timeline"))
        assert any(lane["spans"] for lane in timeline["gpus"])
        assert timeline["to_s"] >= max(job["finished_at_s"] for job in jobs)
        decisions = json_of(await ask(f"/v1/jobs/{jobs[0]['id']}/decisions"))["decisions"]
        assert any(decision["costs"] for decision in decisions)
        assert json_of(await ask("/v1/overview"))["running"] == 0
        usage = json_of(await ask("/v1/usage?by=job"))
        assert sum(row["trained_gpu_s"] for row in usage["rows"]) > 0

    served(chosen(runs_in(replay_folder), None), tmp_path / "copy", test)
    assert digests(replay_folder) == before


def test_a_past_run_takes_no_writes_and_no_reader_without_its_token(
    replay_folder: Path, tmp_path: Path
) -> None:
    async def test(ask: Ask) -> None:
        assert json_of(await ask("/v1/session"))["past"] is True
        name = json_of(await ask("/v1/jobs"))["jobs"][0]["id"]
        for path in (f"/v1/jobs/{name}/cancel", f"/v1/jobs/{name}/pin", "/v1/jobs", "/v1/profiles"):
            assert (await ask(path, "POST")).code == 405, path
        for path in ("/v1/jobs", "/v1/session", "/v1/overview", f"/v1/jobs/{name}"):
            assert (await ask(path, token="another")).code == 401, path
        assert (await ask("/page/", token="another")).code == 200

    served(chosen(runs_in(replay_folder), None), tmp_path / "copy", test)


def test_a_home_is_opened_as_a_copy_also_while_its_daemon_runs(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)

    async def daemon(it: Api) -> None:
        await it.post("/v1/jobs", RECORD)
        running = await it.reaches("job", "running")
        (run,) = runs_in(tmp_path)
        store = await open_copy(run, tmp_path / "copy")
        context = await past_context(store, run.logs, TOKEN)
        assert [each.id for each in context.control.live_jobs()] == [running["id"]]
        await store.close()
        assert (await it.post("/v1/jobs/job/cancel")).code == 200

    run_daemon(home, daemon)


def test_a_home_that_its_reader_may_not_write_is_opened_without_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def daemon(it: Api) -> None:
        await it.post("/v1/jobs", RECORD)

    async def read() -> None:
        (run,) = runs_in(tmp_path)
        store = await open_copy(run, tmp_path / "copy")
        assert (await store.jobs()).total == 1
        await store.close()

    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    run_daemon(home, daemon)
    before = digests(home)
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    connect = file.connect

    def refused(path: Path) -> sqlite3.Connection:
        assert path.parent != home, "the store is opened for writing"
        return connect(path)

    monkeypatch.setattr(file, "connect", refused)
    asyncio.run(read())
    assert digests(home) == before


def test_runs_are_named_and_a_wrong_name_or_folder_is_refused_with_the_remedy(
    replay_folder: Path, tmp_path: Path
) -> None:
    runs = runs_in(replay_folder)
    assert [run.name for run in runs] == ["adaptive-0", "default-0"]
    assert chosen(runs, "default-0").name == "default-0"
    with pytest.raises(CliError, match="adaptive-0, default-0"):
        chosen(runs, "no-such")
    with pytest.raises(CliError, match="make demo"):
        runs_in(tmp_path)


def test_a_log_of_another_version_is_refused_by_its_line(
    replay_folder: Path, tmp_path: Path
) -> None:
    lines = (replay_folder / "log" / "adaptive-0.jsonl").read_text().splitlines()
    broken = tmp_path / "broken.jsonl"
    broken.write_text("\n".join([*lines[:3], '{"seq": 4, "strange": 1}', *lines[4:]]) + "\n")
    (run,) = runs_in(broken)
    copy = tmp_path / "copy"
    with pytest.raises(CliError, match="line 4 is no record"):
        asyncio.run(open_copy(run, copy))
