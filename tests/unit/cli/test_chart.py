"""A timeline as a picture, as a trace, and the reshapes in it."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from reshape_controller.cli.exits import CliError, Exit
from reshape_controller.cli.timeline import chart
from reshape_controller.cli.timeline.reshapes import reshapes_of
from reshape_controller.cli.timeline.trace_events import GPUS, JOBS, trace_events
from reshape_controller.http.timeline import Timeline
from tests.support.demo_bed import BEGIN_S, in_place

TIMELINE = in_place().timeline
EMPTY = Timeline(0, 0.0, 1.0, (), ())


def test_reshapes_are_found_where_a_job_trains_on_another_number_of_gpus() -> None:
    down, up = reshapes_of(TIMELINE)
    assert (down.name, down.from_gpus, down.to_gpus, down.down) == ("job-1", 4, 2, True)
    assert (down.from_s - BEGIN_S, down.to_s - BEGIN_S) == (20.0, 25.0)
    assert (up.from_gpus, up.to_gpus, up.down) == (2, 4, False)


def test_a_restart_at_the_same_size_is_no_reshape() -> None:
    first, second = TIMELINE.jobs
    same = replace(first, spans=tuple(replace(span, size=4) for span in first.spans))
    assert reshapes_of(replace(TIMELINE, jobs=(same, second))) == ()


def test_a_trace_has_a_track_for_each_gpu_and_job_and_microseconds_from_the_begin() -> None:
    events = trace_events(TIMELINE, {"costs": "measured"})["traceEvents"]
    tracks = {(e["pid"], e["args"]["name"]) for e in events if e["name"] == "thread_name"}
    assert tracks == {
        *((GPUS, f"local GPU {number}") for number in range(4)),
        (JOBS, "job-1"),
        (JOBS, "job-2"),
    }
    first = next(e for e in events if e["ph"] == "X" and e["name"] == "training job-1")
    assert (first["ts"], first["dur"]) == (5_000_000, 15_000_000)
    marks = [e["name"] for e in events if e["ph"] == "i"]
    assert marks == ["completed", "completed", "reshape down: 4 to 2", "reshape up: 2 to 4"]
    assert all(e["ts"] >= 0 and e.get("dur", 0) >= 0 for e in events if "ts" in e and e["pid"] == 2)


def test_a_span_that_lasts_ends_with_the_timeline() -> None:
    first, second = TIMELINE.jobs
    going = replace(first, ended_at_s=None, spans=(replace(first.spans[-1], to_s=None),))
    events = trace_events(replace(TIMELINE, jobs=(going, second)), {})["traceEvents"]
    (last,) = [e for e in events if e["ph"] == "X" and e["pid"] == JOBS and e["tid"] == 1]
    assert last["dur"] == 31_000_000


def test_a_picture_has_lanes_bars_and_marks_and_is_the_same_twice(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    chart.save(TIMELINE, tmp_path / "one.svg", "a title")
    chart.save(TIMELINE, tmp_path / "two.svg", "a title")
    text = (tmp_path / "one.svg").read_text()
    assert text == (tmp_path / "two.svg").read_text()
    found = re.findall(r'id="([^"]+)"', text)
    assert found.count("reshape") == 2
    assert found.count("training") == 4 * 3 + 3 + 1
    for label in ("a title", "GPU 3", "B job-2", "saves, stops, is verified"):
        assert label in text


@pytest.mark.parametrize("timeline", [TIMELINE, EMPTY], ids=["jobs", "no job"])
def test_a_png_is_written_for_any_timeline(timeline: Timeline, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    chart.save(timeline, tmp_path / "one.png", "a title")
    assert (tmp_path / "one.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("name", "code"), [("a.pdf", Exit.USAGE), ("no/such/folder/a.svg", Exit.FAILED)]
)
def test_a_picture_that_cannot_be_written_is_one_clear_error(
    name: str, code: Exit, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(CliError) as caught:
        chart.save(TIMELINE, tmp_path / name, "a title")
    assert caught.value.code is code
    assert "remedy" in caught.value.text()


def test_without_matplotlib_the_remedy_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(CliError, match="charts need matplotlib") as caught:
        chart.save(TIMELINE, tmp_path / "one.svg", "a title")
    assert "pip install matplotlib" in caught.value.text()
