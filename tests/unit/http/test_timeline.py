"""Who held which GPU when, from the log."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

from reshape_controller.http import cluster, timeline_window
from reshape_controller.http import timeline as module
from reshape_controller.http.timeline import Recorder, TimelineReader
from reshape_controller.store.sqlite.recover import recover
from reshape_controller.store.sqlite.store import SqliteStore
from reshape_gpu.usage import By
from tests.support.http_bed import RECORD, api


async def _hand_over(folder: Path) -> Any:
    """One job on four GPUs, another that takes two of them and ends; the timeline as JSON."""
    async with api(folder) as it:
        await it.post("/v1/jobs", {**RECORD, "name": "first"})
        await it.reaches("first", "running")
        record = {**RECORD, "name": "second", "optional_gpus": [2], "max_wait_s": 1}
        second = (await it.post("/v1/jobs", record)).json["id"]
        await it.reaches("second", "running")
        middle = (await it.get("/v1/timeline")).json
        it.launcher.job(second).finish()
        await it.reaches("second", "completed")
        await it.post("/v1/jobs/first/cancel")
        await it.reaches("first", "cancelled")
        async with asyncio.timeout(20):
            while {g["state"] for g in (await it.get("/v1/gpus")).json["gpus"]} != {"idle"}:
                await asyncio.sleep(0.05)
        return middle, (await it.get("/v1/timeline")).json


def test_the_timeline_shows_the_early_initialisation_and_the_hand_over(tmp_path: Path) -> None:
    middle, whole = asyncio.run(_hand_over(tmp_path))
    names = {job["id"]: job["name"] for job in whole["jobs"]}
    assert list(names.values()) == ["first", "second"]
    trained = [
        [names[span["job"]] for span in lane["spans"] if span["phase"] == "training"]
        for lane in middle["gpus"]
    ]
    assert sorted(owners[-1] for owners in trained) == ["first", "first", "second", "second"]
    phases = [span["phase"] for span in whole["jobs"][1]["spans"]]
    assert phases.index("initializing") < phases.index("training")
    first, second = whole["jobs"]
    initialised_s = next(s["to_s"] for s in second["spans"] if s["phase"] == "initializing")
    stopped_s = next(s["from_s"] for s in first["spans"] if s["phase"] == "saving")
    assert initialised_s <= stopped_s, "the running job was not asked before the other was ready"
    assert all(span["to_s"] is not None for lane in whole["gpus"] for span in lane["spans"])


def test_no_gpu_has_two_spans_at_once(tmp_path: Path) -> None:
    _, whole = asyncio.run(_hand_over(tmp_path))
    for lane in whole["gpus"]:
        ends = [(span["from_s"], span["to_s"]) for span in lane["spans"]]
        assert ends == sorted(ends)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(ends))


def test_reading_step_by_step_and_reading_at_once_give_the_same(tmp_path: Path) -> None:
    async def test() -> None:
        await _hand_over(tmp_path)
        store = SqliteStore(tmp_path / "store.sqlite")
        await store.open()
        try:
            whole = await TimelineReader().read(store)
            assert await TimelineReader().read(store) == whole
            reader = TimelineReader()
            assert await reader.read(store) == await reader.read(store) == whole
            late = await reader.read(store, whole.to_s - 0.001)
            assert len(late.gpus[0].spans) < len(whole.gpus[0].spans)
        finally:
            await store.close()

    asyncio.run(test())


def test_a_log_whose_beginning_is_gone_is_read_from_its_snapshot_on(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("reshape_controller.live.journal.SNAPSHOT_EVERY", 5)

    async def test() -> None:
        await _hand_over(tmp_path)
        path = tmp_path / "store.sqlite"
        with closing(sqlite3.connect(path)) as damaged, damaged:
            damaged.execute("UPDATE log SET body = 'gone' WHERE seq = 2")
        assert recover(path, tmp_path / "saved.sqlite").first_seq > 2
        store = SqliteStore(tmp_path / "saved.sqlite")
        await store.open()
        try:
            whole = await TimelineReader().read(store)
            assert whole.seq == await store.last_seq()
            assert any(lane.spans for lane in whole.gpus)
        finally:
            await store.close()

    asyncio.run(test())


def test_a_long_log_keeps_the_newest_spans_only(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "SPANS_MAX", 8)
    _, whole = asyncio.run(_hand_over(tmp_path))
    count = sum(len(lane["spans"]) for lane in (*whole["gpus"], *whole["jobs"]))
    assert 0 < count < 30
    assert Recorder().timeline().gpus == ()


def test_the_usage_needs_the_whole_log_also_if_the_timeline_does_not(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("reshape_controller.live.journal.SNAPSHOT_EVERY", 5)

    async def test() -> None:
        _, whole = await _hand_over(tmp_path)
        store = SqliteStore(tmp_path / "store.sqlite")
        await store.open()
        try:
            end_s = whole["to_s"] + 1.0
            short = await TimelineReader().usage(store, By.JOB, 0.0, end_s)
            monkeypatch.setattr(module, "RECORDS_MAX", 3)
            reader = TimelineReader()
            assert (await reader.read(store)).from_s > whole["from_s"]
            assert await reader.usage(store, By.JOB, 0.0, end_s) == short
            assert await reader.usage(store, By.JOB, 0.0, end_s) == short
            whole_reader = reader._usage
            assert whole_reader is not None
            assert whole_reader is not reader
            assert whole_reader._feed.after(0, 10**9) == (), "only the other reader is asked for it"
        finally:
            await store.close()
        trained = {row.name: row.trained_gpu_s for row in short.rows}
        for lane in whole["jobs"]:
            spans = [span for span in lane["spans"] if span["phase"] == "training"]
            expected = sum(span["size"] * (span["to_s"] - span["from_s"]) for span in spans)
            assert abs(trained[lane["id"]] - expected) < 1e-6
        assert abs(short.all_gpu_s - 4 * (end_s - short.from_s)) < 0.001 * short.all_gpu_s

    asyncio.run(test())


def test_the_spans_of_a_long_timeline_are_merged_beside_other_requests(
    tmp_path: Path, monkeypatch: Any
) -> None:
    threads = []

    def merged(timeline: module.Timeline, most: int) -> module.Timeline:
        threads.append(threading.current_thread())
        return timeline_window.merged(timeline, most)

    monkeypatch.setattr(cluster, "merged", merged)

    async def test() -> None:
        async with api(tmp_path) as it:
            assert (await it.get("/v1/timeline?max_spans=10")).code == 200
        assert len(threads) == 1
        assert threads[0] is not threading.current_thread()

    asyncio.run(test())


def test_usage_by_an_unknown_kind_or_a_time_that_is_none_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with api(tmp_path) as it:
            for query, where in (("by=x", "query by"), ("from_s=x", "query from_s")):
                refused = await it.get(f"/v1/usage?{query}")
                assert (refused.code, refused.json["path"]) == (400, where)
            backwards = await it.get("/v1/usage?from_s=2e9&to_s=1e9")
            assert (backwards.code, backwards.json["path"]) == (400, "query to_s")

    asyncio.run(test())
