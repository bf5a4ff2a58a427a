"""The SideCars' long poll over HTTP: whose word counts, and what a bad report gets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reshape_sidecar import codec
from reshape_sidecar.wire import LEVEL_HEADER, WIRE_LEVEL, Desired, Mode, Observed, Phase
from tests.support.http_bed import RECORD, TOKEN, Api, api


def run(folder: Path, test: Callable[[Api, str, Observed], Awaitable[None]]) -> None:
    """``test`` gets a job that trains, with the newest report of its first attempt."""

    async def inside() -> None:
        async with api(folder) as it:
            job = (await it.post("/v1/jobs", RECORD)).json["id"]
            await it.reaches(job, "running")
            sidecar = it.launcher.job(job)
            assert sidecar.task is not None
            sidecar.over = True
            await sidecar.task
            sidecar.over = False
            observed = replace(sidecar.observed, sequence=sidecar.observed.sequence + 1000)
            await test(it, job, observed)

    asyncio.run(inside())


def test_a_report_is_answered_with_the_desired_state(tmp_path: Path) -> None:
    async def test(it: Api, job: str, seen: Observed) -> None:
        answer = await it.ask(
            "POST", f"/v1/sidecar/{job}/1", codec.dumps(seen), token=it.tokens.of(job, 1)
        )
        assert answer.code == 200
        desired = codec.loads(Desired, answer.body)
        assert (desired.job, desired.attempt, desired.mode) == (job, 1, Mode.RUN)
        assert len(desired.devices) == 4

    run(tmp_path, test)


def test_an_answer_is_held_until_something_else_is_wanted(tmp_path: Path) -> None:
    async def test(it: Api, job: str, seen: Observed) -> None:
        path, token = f"/v1/sidecar/{job}/1?wait_s=30", it.tokens.of(job, 1)
        waiting = asyncio.create_task(it.ask("POST", path, codec.dumps(seen), token=token))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        assert (await it.post(f"/v1/jobs/{job}/halt")).code == 200
        desired = codec.loads(Desired, (await waiting).body)
        assert desired.generation > seen.generation

    run(tmp_path, test)


def test_what_a_sidecar_says_is_shown_at_once(tmp_path: Path) -> None:
    async def test(it: Api, job: str, seen: Observed) -> None:
        progress = replace(seen.progress, step=4242, total_steps=5000, loss=0.5)
        report = codec.dumps(replace(seen, progress=progress, pid=77))
        await it.ask("POST", f"/v1/sidecar/{job}/1", report, token=it.tokens.of(job, 1))
        shown = (await it.get(f"/v1/jobs/{job}")).json
        assert (shown["step"], shown["loss"], shown["pid"]) == (4242, 0.5, 77)
        assert shown["progress_ratio"] == pytest.approx(0.8484)

    run(tmp_path, test)


def test_only_the_attempts_own_token_counts(tmp_path: Path) -> None:
    async def test(it: Api, job: str, seen: Observed) -> None:
        wrong = (TOKEN, it.tokens.of(job, 2), it.tokens.of("other", 1), "", None)
        for token in wrong:
            answer = await it.ask("POST", f"/v1/sidecar/{job}/1", codec.dumps(seen), token=token)
            assert (answer.code, answer.json["code"]) == (401, "unauthorized"), token
        answer = await it.ask("GET", "/v1/jobs", token=it.tokens.of(job, 1))
        assert answer.code == 401, "an attempt's token opens nothing else"

    run(tmp_path, test)


def test_an_attempt_that_is_not_meant_to_run_is_told_so(tmp_path: Path) -> None:
    async def test(it: Api, job: str, seen: Observed) -> None:
        late = codec.dumps(replace(seen, attempt=9))
        answer = await it.ask("POST", f"/v1/sidecar/{job}/9", late, token=it.tokens.of(job, 9))
        assert (answer.code, answer.json["code"]) == (410, "unknown-attempt")

    run(tmp_path, test)


def test_a_bad_report_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async def test(it: Api, job: str, seen: Observed) -> None:
        good = codec.dumps(seen)
        bad = {
            "no JSON": "{",
            "not UTF-8": b"\xff",
            "unknown field": good.replace('"phase"', '"fase"'),
            "unknown phase": good.replace(f'"{seen.phase.value}"', '"flying"'),
            "of another job": codec.dumps(replace(seen, job="other")),
            "of another attempt": codec.dumps(replace(seen, attempt=2)),
            "another version": codec.dumps(replace(seen, version=99)),
        }
        token = it.tokens.of(job, 1)
        for name, body in bad.items():
            answer = await it.ask("POST", f"/v1/sidecar/{job}/1", body, token=token)
            assert (answer.code, answer.json["code"]) == (400, "bad-request"), name
        wait = await it.ask("POST", f"/v1/sidecar/{job}/1?wait_s=1e9", good, token=token)
        assert (wait.code, wait.json["path"]) == (400, "query wait_s")
        assert (await it.get(f"/v1/jobs/{job}")).json["phase"] == Phase.RUNNING.value

    run(tmp_path, test)


def test_half_a_character_in_a_report_is_refused_and_leaves_every_list_as_it_was(
    tmp_path: Path,
) -> None:
    async def test(it: Api, job: str, seen: Observed) -> None:
        for field in ("error", "exception", "exception_message", "address"):
            told = codec.dumps(replace(seen, **{field: "HALF"}))  # type: ignore[arg-type]
            body = told.replace("HALF", "\\ud800")
            refused = await it.ask("POST", f"/v1/sidecar/{job}/1", body, token=it.tokens.of(job, 1))
            assert (refused.code, refused.json["path"]) == (400, "body")
            assert (await it.get("/v1/jobs")).code == 200
        whole = told.replace("HALF", "\\ud83d\\ude00")
        taken = await it.ask("POST", f"/v1/sidecar/{job}/1", whole, token=it.tokens.of(job, 1))
        assert taken.code == 200

    run(tmp_path, test)


def test_a_sidecar_that_hangs_up_leaves_nothing_waiting(tmp_path: Path) -> None:
    async def test(it: Api, job: str, seen: Observed) -> None:
        body = codec.dumps(seen)
        head = (
            f"POST /v1/sidecar/{job}/1?wait_s=60 HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {it.tokens.of(job, 1)}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        before = len(asyncio.all_tasks())
        _reader, writer = await asyncio.open_connection("127.0.0.1", it.port)
        writer.write((head + body).encode())
        await writer.drain()
        await asyncio.sleep(0.3)
        writer.close()
        async with asyncio.timeout(20):
            while len(asyncio.all_tasks()) > before:
                await asyncio.sleep(0.05)

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("header", "prepare"), [({}, None), ({LEVEL_HEADER: "2"}, None), ({LEVEL_HEADER: "3"}, ("g",))]
)
def test_a_sidecar_gets_fields_of_the_level_in_its_header_alone(
    tmp_path: Path, header: dict[str, str], prepare: tuple[str, ...] | None
) -> None:
    async def test(it: Api, job: str, seen: Observed) -> None:
        path, token = f"/v1/sidecar/{job}/1", it.tokens.of(job, 1)
        plain = await it.ask("POST", path, codec.dumps(seen), token=token)
        desired = codec.loads(Desired, plain.body)
        assert it.launcher.hub is not None
        it.launcher.hub.set_desired(replace(desired, prepare=("g",)))
        answer = await it.ask("POST", path, codec.dumps(seen), token=token, **header)
        assert answer.headers[LEVEL_HEADER.lower()] == str(WIRE_LEVEL)
        assert codec.loads(Desired, answer.body).prepare == prepare
        wrong = await it.ask(
            "POST", path, codec.dumps(seen), token=token, **{LEVEL_HEADER: "three"}
        )
        assert (wrong.code, wrong.json["path"]) == (400, f"header {LEVEL_HEADER}")

    run(tmp_path, test)
