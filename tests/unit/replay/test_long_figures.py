"""Figures of long traces: units, axes, and courses with more moments than a picture can show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reshape_controller.replay.account import Moment
from reshape_controller.replay.figures import (
    DAY_S,
    MOMENTS_MAX,
    PARTS,
    course,
    figure_7,
    figure_9,
    unit_of,
)
from reshape_controller.replay.shell import Result
from tests.support.replay_bed import job, run, scene


@pytest.fixture(scope="module")
def short() -> Result:
    return run(scene([job("a", 0.0, 5), job("b", 30.0, 5)]), "adaptive", keep=True)


def with_course(result: Result, moments: int, step_s: float) -> Result:
    """The result with a course in which 8 GPUs are allocated in each second moment."""
    found = tuple(Moment(number * step_s, 0, 1, 8 * (number % 2)) for number in range(moments))
    return replace(result, course=found)


def test_times_of_five_days_and_more_are_drawn_in_days() -> None:
    assert unit_of(4.9 * DAY_S).name == "1,000 s"
    assert (unit_of(5 * DAY_S).name, unit_of(5 * DAY_S).seconds) == ("days", DAY_S)


def test_a_short_course_is_drawn_as_it_is(short: Result) -> None:
    times, values = course(short, "running")
    assert len(times) == len(short.course) + 1
    assert values[:-1] == [moment.running for moment in short.course]


def test_a_long_course_is_drawn_as_its_means_over_equal_parts_of_the_time(short: Result) -> None:
    given = with_course(short, MOMENTS_MAX + 1, 10.0)
    times, values = course(given, "allocated")
    assert (len(times), len(values)) == (PARTS + 2, PARTS + 2)
    assert values[-1] == 0.0
    assert values[:PARTS] == pytest.approx([4.0] * PARTS, abs=0.4)
    area = sum((b - a) * y for a, b, y in zip(times, times[1:], values, strict=False))
    assert area == pytest.approx(8 * 10.0 * (MOMENTS_MAX // 2)), "no GPU time is lost"


def test_a_long_course_has_moments_at_the_same_time_and_long_gaps(short: Result) -> None:
    moments = [Moment(float(number // 3), 0, number % 3, 0) for number in range(MOMENTS_MAX)]
    moments.append(Moment(1e6, 0, 0, 0))
    times, values = course(replace(short, course=tuple(moments)), "running")
    assert times == sorted(times)
    assert values[1:PARTS] == [2.0] * (PARTS - 1), "the last of each time counts"


@pytest.mark.parametrize(("longest", "is_wide"), [(400.0, False), (40_000.0, True)])
def test_completion_times_of_very_different_lengths_have_a_logarithmic_axis(
    tmp_path: Path, longest: float, is_wide: bool
) -> None:
    figure_9(tmp_path / "nine", {"t": {"adaptive": [100.0, 110.0, 120.0, longest]}})
    svg = (tmp_path / "nine.svg").read_text()
    assert (">0.1<" in svg and ">10<" in svg) == is_wide


def test_a_figure_of_weeks_says_days(short: Result, tmp_path: Path) -> None:
    weeks = replace(short, metrics=replace(short.metrics, makespan_s=20 * DAY_S))
    figure_7(tmp_path / "seven", {"adaptive": weeks})
    assert "days since the first submission" in (tmp_path / "seven.svg").read_text()
