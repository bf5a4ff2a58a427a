"""Log files by byte offset: while they grow, over a rotation, over attempts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from reshape_controller.http import logs as logs_module
from reshape_controller.http.logs import NAMED_MAX, PAGE_BYTES_MAX, read
from reshape_sidecar.init.logs import HOLE_BYTES, rotate
from tests.support import log_lines
from tests.support.http_bed import RECORD, Answer, Api, api


def run(folder: Path, test: Callable[[Api, Path], Awaitable[None]]) -> None:
    """``test`` gets a job that trains, and the folder of its first attempt's logs."""

    async def inside() -> None:
        async with api(folder) as it:
            await it.post("/v1/jobs", RECORD)
            await it.reaches("job", "running")
            logs = it.logs / "job" / "1"
            logs.mkdir(parents=True)
            await test(it, logs)

    asyncio.run(inside())


def said(answer: Answer) -> tuple[bytes, int, int, str]:
    headers = answer.headers
    return (
        answer.body,
        int(headers["reshape-log-attempt"]),
        int(headers["reshape-log-next"]),
        headers["reshape-log-ended"],
    )


def test_the_tail_then_what_comes_after_it_then_more_as_it_is_written(tmp_path: Path) -> None:
    async def test(it: Api, logs: Path) -> None:
        file = logs / "training.log"
        file.write_text("".join(f"line {number}\n" for number in range(10)))
        body, attempt, following, ended = said(await it.get("/v1/jobs/job/logs?tail=2"))
        assert (body, attempt, following, ended) == (b"line 8\nline 9\n", 1, 70, "false")
        more = f"/v1/jobs/job/logs?attempt=1&offset={following}"
        assert said(await it.get(more)) == (b"", 1, 70, "false")
        waiting = asyncio.create_task(it.get(f"{more}&wait_s=30"))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        with file.open("a") as log:
            log.write("late\n")
        assert said(await waiting) == (b"late\n", 1, 75, "false")

    run(tmp_path, test)


def test_a_log_of_an_ended_job_says_that_nothing_more_will_come(tmp_path: Path) -> None:
    async def test(it: Api, logs: Path) -> None:
        (logs / "training.log").write_text("the end\n")
        it.launcher.job((await it.get("/v1/jobs/job")).json["id"]).finish()
        await it.reaches("job", "completed")
        body, _, following, ended = said(await it.get("/v1/jobs/job/logs?wait_s=30"))
        assert (body, following, ended) == (b"the end\n", 8, "true")

    run(tmp_path, test)


def test_a_log_that_was_cut_by_its_rotation_is_read_from_its_beginning(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"new")
    chunk = read(tmp_path / "a.log", 1, 1000, 0)
    assert chunk is not None
    assert (chunk.data, chunk.next, chunk.missed) == (b"new", 3, None)


def test_a_reader_that_is_slower_than_the_writer_is_told_how_many_bytes_it_missed(
    tmp_path: Path,
) -> None:
    async def test(it: Api, logs: Path) -> None:
        bound = 4 * HOLE_BYTES
        (logs / "training.log").write_bytes(b"a" * HOLE_BYTES + b"b" * bound)
        rotate(logs, bound)
        answer = await it.get("/v1/jobs/job/logs?attempt=1&offset=100")
        assert answer.headers["reshape-log-missed"] == str(HOLE_BYTES - 100)
        assert answer.headers["reshape-log-offset"] == str(HOLE_BYTES)
        assert answer.body[:1] == b"b"
        tail = await it.get("/v1/jobs/job/logs?tail=100000")
        assert tail.headers["reshape-log-missed"] == "0"
        assert b"\0" not in tail.body
        following = answer.headers["reshape-log-next"]
        more = await it.get(f"/v1/jobs/job/logs?attempt=1&offset={following}")
        assert more.headers["reshape-log-missed"] == "0"
        too_far = await it.get("/v1/jobs/job/logs?attempt=1&offset=99999999")
        assert too_far.headers["reshape-log-missed"] == "unknown"

    run(tmp_path, test)


def test_a_part_that_is_freed_during_a_read_is_missed_and_not_read_as_zeros(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.log").write_bytes(b"a" * HOLE_BYTES + b"b" * HOLE_BYTES)
    pread = os.pread

    def freeing(fd: int, count: int, offset: int) -> bytes:
        rotate(tmp_path, HOLE_BYTES)
        return pread(fd, count, offset)

    monkeypatch.setattr(os, "pread", freeing)
    chunk = read(tmp_path / "a.log", 1, 0, 0)
    assert chunk is not None
    assert (chunk.missed, chunk.data) == (HOLE_BYTES, b"b" * HOLE_BYTES)


def test_every_line_that_a_slow_reader_misses_is_in_a_reported_gap(tmp_path: Path) -> None:
    found = log_lines.campaign(24 << 20, 40e6, 2 << 20, 0.3, tmp_path)
    assert found["gaps"] > 0, "the reader was not slow; the test shows nothing"
    assert found["read bytes"] > 0


@pytest.mark.parametrize(
    ("text", "lines", "found"),
    [
        ("a\nb\nc\n", 1, "c\n"),
        ("a\nb\nc", 1, "c"),
        ("a\nb\nc", 2, "b\nc"),
        ("a\nb\n", 9, "a\nb\n"),
        ("a\nb\n", 0, ""),
        ("", 5, ""),
        ("\n\n\n", 2, "\n\n"),
    ],
)
def test_the_tail_has_as_many_lines_as_asked_for(
    tmp_path: Path, text: str, lines: int, found: str
) -> None:
    (tmp_path / "a.log").write_text(text)
    chunk = read(tmp_path / "a.log", 1, None, lines)
    assert chunk is not None
    assert (chunk.data.decode(), chunk.next) == (found, len(text))


def test_a_page_is_bounded_and_the_next_one_follows(tmp_path: Path) -> None:
    data = os.urandom(PAGE_BYTES_MAX * 2 + 5)
    (tmp_path / "a.log").write_bytes(data)
    found, at = b"", 0
    while at < len(data):
        chunk = read(tmp_path / "a.log", 1, at, 0)
        assert chunk is not None
        assert 0 < len(chunk.data) <= PAGE_BYTES_MAX
        found, at = found + chunk.data, chunk.next
    assert found == data


def test_only_plain_files_of_the_log_folder_are_read(tmp_path: Path) -> None:
    async def test(it: Api, logs: Path) -> None:
        (tmp_path / "secret").write_text("secret")
        (logs / "link.log").symlink_to(tmp_path / "secret")
        os.mkfifo(logs / "pipe.log")
        (logs / "folder.log").mkdir()
        for name in ("link.log", "pipe.log", "folder.log", "gone.log"):
            assert (await it.get(f"/v1/jobs/job/logs?file={name}")).code == 404, name
        for name in (
            "../1/training.log",
            "..%2Fa.log",
            "/etc/passwd",
            "a",
            "A.log",
            ".log",
            "x%00.log",
        ):
            assert (await it.get(f"/v1/jobs/job/logs?file={name}")).code == 400, name

    run(tmp_path, test)


def test_of_a_folder_with_many_files_a_few_are_looked_at_and_named(tmp_path: Path) -> None:
    async def test(it: Api, logs: Path) -> None:
        for number in range(3000):
            (logs / f"file-{number}.log").touch()
        answer = await it.get("/v1/jobs/job/logs?file=none.log")
        assert answer.code == 404
        assert answer.json["hint"].count(".log") == NAMED_MAX

    run(tmp_path, test)


def test_a_log_that_is_freed_without_end_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.log").write_bytes(b"text\n" * 1000)
    begins = iter(range(0, 10**6, 2))
    monkeypatch.setattr(logs_module, "data_begin", lambda fd, size: next(begins))
    assert read(tmp_path / "x.log", 1, 0, 0) is None


def test_a_job_without_a_container_has_no_log_yet_and_says_why(tmp_path: Path) -> None:
    async def test(it: Api, logs: Path) -> None:
        queued = {**RECORD, "name": "queued", "optional_gpus": [4]}
        assert (await it.post("/v1/jobs", queued)).code == 201
        answer = await it.get("/v1/jobs/queued/logs")
        assert answer.code == 404
        assert "no training.log yet" in answer.json["message"]
        waited = await it.get("/v1/jobs/queued/logs?wait_s=0.3")
        assert said(waited)[:2] == (b"", 0)

    run(tmp_path, test)


def test_a_job_whose_training_has_not_begun_says_why_and_not_that_its_log_is_gone(
    tmp_path: Path,
) -> None:
    async def test(it: Api, logs: Path) -> None:
        answer = await it.get("/v1/jobs/job/logs")
        assert answer.code == 404
        assert "job has no training.log yet: " in answer.json["message"].replace(
            (await it.get("/v1/jobs/job")).json["id"], "job"
        )
        assert answer.json["hint"].startswith("reshape logs -f ")
        (logs / "agent.log").write_text("")
        answer = await it.get("/v1/jobs/job/logs?file=worker.log")
        assert answer.json["hint"] == "its log files: agent.log"
        it.launcher.job((await it.get("/v1/jobs/job")).json["id"]).finish()
        await it.reaches("job", "completed")
        answer = await it.get("/v1/jobs/job/logs")
        assert "its training did not start" in answer.json["message"]

    run(tmp_path, test)
