"""The series of a job's training: bounded, with the newest point, and over the whole time."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.record import LogRecord
from reshape_controller.core.state import State
from reshape_controller.http import feed
from reshape_controller.http.feed import POINTS_MAX, SeriesBook
from reshape_sidecar.wire import Observed, Phase, Progress
from tests.support.http_bed import RECORD, Api, api


def reported(
    book: SeriesBook, job: str, at_s: float, step: int, size: int = 2, **more: Any
) -> None:
    """Have the book take in one report of a job on ``size`` GPUs."""
    progress = Progress(step=step, **more)
    event = ev.SideCarReported(Observed(job, 1, 1, step, Phase.RUNNING, progress=progress))
    jobs = {job: SimpleNamespace(gpus=tuple(range(size)))}
    state = cast(State, SimpleNamespace(jobs=jobs))
    book.take(state, cast(LogRecord, SimpleNamespace(at_s=at_s, events=(event,))))


def test_a_long_series_is_thinned_evenly_and_ends_with_the_newest_report() -> None:
    book = SeriesBook()
    for step in range(1, 20_001):
        reported(book, "job", step * 0.5, step, loss=1.0 / step)
    points = book.points(cast(Any, "job"))
    assert POINTS_MAX / 4 <= len(points) <= POINTS_MAX
    assert (points[0].step, points[-1].step) == (1, 20_000)
    assert points[-1].loss == pytest.approx(1.0 / 20_000)
    gaps = [after.at_s - before.at_s for before, after in itertools.pairwise(points)]
    assert min(gaps) > 0
    assert max(gaps[:-1]) < 10_000 / (POINTS_MAX / 8)


def test_a_change_of_the_size_is_a_point_also_if_it_is_close() -> None:
    book = SeriesBook()
    for step in range(1, 1_001):
        reported(book, "job", float(step), step)
    for number in range(3):
        reported(book, "job", 1_000.1 + number / 10, 1_001 + number, size=4 if number % 2 else 3)
    assert [point.size for point in book.points(cast(Any, "job"))][-3:] == [3, 4, 3]


def test_values_that_were_not_reported_are_null() -> None:
    book = SeriesBook()
    reported(book, "job", 1.0, 5, seconds_per_step=0.25, loss=float("inf"))
    (point,) = book.points(cast(Any, "job"))
    assert (point.step, point.size, point.seconds_per_step) == (5, 2, 0.25)
    assert (point.loss, point.accuracy) == (None, None)


def test_only_the_jobs_that_reported_last_have_a_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "SERIES_MAX", 2)
    book = SeriesBook()
    for number, job in enumerate(("a", "b", "a", "c"), 1):
        reported(book, job, float(number), number)
    assert [len(book.points(cast(Any, job))) for job in ("a", "b", "c")] == [2, 0, 1]


def test_the_series_of_a_job_that_trains_is_served(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        await it.post("/v1/jobs", RECORD)
        await it.reaches("job", "running")
        async with asyncio.timeout(20):
            while not (found := (await it.get("/v1/jobs/job/series")).json)["points"]:
                await asyncio.sleep(0.05)
        assert found["job"] == (await it.get("/v1/jobs/job")).json["id"]
        assert (found["points"][-1]["size"], found["points"][-1]["step"] > 0) == (4, True)
        assert (await it.get("/v1/jobs/none/series")).code == 404

    async def inside() -> None:
        async with api(tmp_path) as it:
            await test(it)

    asyncio.run(inside())
