"""The text timeline: readable at 100 columns, without colour, true to its spans."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from reshape_controller.cli.timeline.gantt import draw
from reshape_controller.cli.timeline.lanes import Scale, fill, runs, tick_step_s
from reshape_controller.http.timeline import GpuLane, JobLane, Span, Timeline

T = 1_795_247_478.0
BIG, SMALL = "big-1a2b3c4d", "small-99aa88bb"


def span(phase: str, from_s: float, to_s: float | None, job: str = BIG, size: int = 0) -> Span:
    return Span(phase, T + from_s, None if to_s is None else T + to_s, job, size)


KEPT = (
    span("starting", 0, 6),
    span("training", 6, 25, size=4),
    span("saving", 25, 25.3),
    span("starting", 25.3, 29),
    span("training", 29, 60, size=2),
)
GIVEN = (
    *KEPT[:3],
    span("releasing", 25.3, 25.5),
    span("starting", 25.5, 31, SMALL),
    span("training", 31, 48, SMALL, 2),
)
TIMELINE = Timeline(
    7,
    T,
    T + 60,
    (GpuLane("sim-0", "local", 0, KEPT), GpuLane("sim-1", "local", 1, GIVEN)),
    (
        JobLane(BIG, "big", "running", T, None, 0, (span("initializing", 0, 1), *KEPT)),
        JobLane(
            SMALL,
            "small",
            "completed",
            T + 20,
            T + 48,
            3,
            (
                span("initializing", 20, 23, SMALL),
                span("initialized", 23, 25.5, SMALL),
                *GIVEN[4:],
            ),
        ),
    ),
)


def drawn(timeline: Timeline = TIMELINE, columns: int = 100, *, unicode: bool = True) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=columns, no_color=True, markup=False, highlight=False)
    console.print(draw(timeline, columns, unicode=unicode))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("columns", [60, 80, 100, 160])
@pytest.mark.parametrize("unicode", [True, False])
def test_no_line_is_longer_than_the_terminal(columns: int, unicode: bool) -> None:
    lines = drawn(columns=columns, unicode=unicode)
    assert max(len(line) for line in lines) <= columns
    assert unicode or "\n".join(lines).isascii()


def test_each_gpu_shows_its_owner_and_each_job_its_size() -> None:
    lines = drawn()
    kept = next(line for line in lines if line.startswith("local GPU 0"))
    given = next(line for line in lines if line.startswith("local GPU 1"))
    assert (kept.count(" A "), kept.count(" B ")) == (2, 0)
    assert (given.count(" A "), given.count(" B ")) == (1, 1)
    assert given.index(" A ") < given.index(" B ")
    big = next(line for line in lines if line.startswith("A big"))
    assert big.index(" 4 ") < big.index(" 2 ")


def test_the_early_initialisation_is_seen_while_the_other_job_still_trains() -> None:
    lines = drawn()
    given = next(line for line in lines if line.startswith("local GPU 1"))
    small = next(line for line in lines if line.startswith("B small"))
    columns = [number for number, glyph in enumerate(small) if glyph == "○"]
    assert columns
    assert {given[number] for number in columns} == {"█"}
    assert "●" in small


def test_a_phase_shorter_than_a_column_gets_one_where_there_is_room() -> None:
    given = next(line for line in drawn() if line.startswith("local GPU 1"))
    assert "▒" in given
    assert "?" in given


def test_the_sums_are_those_of_the_spans() -> None:
    row = next(line for line in drawn() if SMALL in line).split()
    state, queued, init, wait, start, train, save, total, lost = row[2:11]
    assert (state, queued, init, wait, start) == ("completed", "0.0s", "3.0s", "2.5s", "5.5s")
    assert (train, save, total, lost) == ("17s", "0.0s", "28s", "3")
    assert drawn()[-1] == "2 GPUs trained 72% of 1m00s; 3 steps lost"


def test_a_running_span_reaches_to_the_end() -> None:
    running = (span("training", 0, None, size=1),)
    timeline = Timeline(
        1,
        T,
        T + 30,
        (GpuLane("sim-0", "local", 0, running),),
        (JobLane(BIG, "big", "running", T, None, 0, running),),
    )
    assert drawn(timeline)[3].endswith("█")
    assert drawn(timeline)[-1].startswith("1 GPU trained 100%")


def test_the_chart_ends_where_the_last_thing_ended() -> None:
    late = Timeline(9, T, T + 9000, TIMELINE.gpus, TIMELINE.jobs)
    assert drawn(late)[:9] == drawn()[:9]


def test_without_jobs_the_way_to_begin_is_told() -> None:
    assert "reshape submit" in drawn(Timeline(0, 0.0, 0.0, (), ()))[0]


def test_very_many_jobs_and_long_names_are_kept_within_bounds() -> None:
    jobs = tuple(
        JobLane(f"{number}-" + "n" * 60, "n" * 60, "completed", T, T + 1, 0, ())
        for number in range(100)
    )
    lines = drawn(Timeline(1, T, T + 10, TIMELINE.gpus, jobs))
    assert len(lines) < 120
    assert max(len(line) for line in lines) <= 100


@pytest.mark.parametrize("length_s", [0.5, 3, 59, 600, 7200, 86_400, 10_000_000])
def test_ticks_are_round_and_apart(length_s: float) -> None:
    scale = Scale(0.0, length_s, 80)
    step_s = tick_step_s(scale, 9)
    assert step_s / scale.column_s >= 9
    assert step_s / scale.column_s <= 80 or length_s < 1


def test_columns_go_to_the_span_that_fills_most_of_them() -> None:
    spans = (Span("training", 0.0, 4.4), Span("saving", 4.4, 5.6), Span("training", 5.6, 10.0))
    lane = fill(spans, Scale(0.0, 10.0, 10))
    assert [(entry.phase, length) for entry, length in runs(lane) if entry] == [
        ("training", 4),
        ("saving", 1),
        ("training", 5),
    ] or [length for _, length in runs(lane)] == [4, 2, 4]


def test_a_gap_stays_a_gap() -> None:
    lane = fill((Span("training", 0.0, 2.0), Span("training", 8.0, 10.0)), Scale(0.0, 10.0, 10))
    assert [entry is not None for entry in lane] == [True] * 2 + [False] * 6 + [True] * 2
