"""Figures of the case study: iterations per second of its jobs, makespan and mean completion time.

Does: draw the paper's Figures 1 (what a reshape takes), 3 (a panel for each approach) and 4 from
our replays. Figure 4 has the printed times beside ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from reshape_controller.replay.case_study import (
    PRINTED,
    SAVE_S,
    SPEEDUP,
    STEP_S,
    STOP_S,
    SUBMITTED_S,
)
from reshape_controller.replay.figure_styles import style_of
from reshape_controller.replay.figures import draw
from reshape_controller.replay.shell import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INCHES = (7.2, 2.4)
SHADES = {"job-1": "#0b3c6f", "job-2": "#d1691b"}
TITLES = {"default": "(a) default", "termination": "(b) by restart", "sidecar": "(c) in place"}
STYLES = {"default": "default", "termination": "termination", "sidecar": "adaptive"}
"""Approaches whose styles the panels have."""

Points = list[tuple[float, float]]


def course(result: Result, job: str, sizes: Mapping[str, int]) -> Points:
    """Return the iterations per second of a job over time, as steps; ``sizes``: sizes at the start.

    A job does none from the request for a reshape until training goes on.
    """
    (row,) = (each for each in result.jobs if str(each.job) == job)
    assert row.first_step_s is not None
    size = sizes[job]
    points = [(0.0, 0.0), (row.first_step_s, SPEEDUP[size] / STEP_S)]
    for change in (each for each in result.reshapes if str(each.job) == job):
        points.append((change.asked_at_s, 0.0))
        points.append((change.asked_at_s + change.seconds, SPEEDUP[change.size_after] / STEP_S))
    return [*points, (row.finished_s - SAVE_S - STOP_S, 0.0)]


def metrics(completed_s: Mapping[str, float]) -> tuple[float, float]:
    """Return makespan and mean completion time, from the submissions of the paper."""
    times = [at_s - SUBMITTED_S[job] for job, at_s in completed_s.items()]
    return max(completed_s.values()), fmean(times)


def spans(result: Result, job: str, sizes: Mapping[str, int]) -> list[tuple[str, float, float]]:
    """Return what a job does from its launch on, as label, start and end; GPUs while it trains."""
    (row,) = (each for each in result.jobs if str(each.job) == job)
    assert row.launched_s is not None
    assert row.first_step_s is not None
    found = [("starts", row.launched_s, row.first_step_s)]
    size, since_s = sizes[job], row.first_step_s
    for change in (each for each in result.reshapes if str(each.job) == job):
        found.append((f"{size} GPUs", since_s, change.asked_at_s))
        size, since_s = change.size_after, change.asked_at_s + change.seconds
        found.append(("reshapes", change.asked_at_s, since_s))
    return [*found, (f"{size} GPUs", since_s, row.finished_s)]


def figure_1(path: Path, results: Mapping[str, Result], sizes: Mapping[str, int]) -> None:
    """Draw what both jobs do, and what a reshape takes, a panel for each approach that reshapes."""
    shown = {label: result for label, result in results.items() if result.reshapes}
    end_s = max(row.finished_s for result in shown.values() for row in result.jobs)

    def panel(label: str) -> Callable[[Axes], None]:
        def draw_it(axes: Axes) -> None:
            for place, (job, shade) in enumerate(SHADES.items()):
                for text, begin_s, stop_s in spans(shown[label], job, sizes):
                    trains = text.endswith("GPUs")
                    face, hatch = (shade, "") if trains else ("white", "///")
                    hatch = "xxx" if text == "reshapes" else hatch
                    width = stop_s - begin_s
                    axes.barh(
                        place, width, 0.6, left=begin_s, color=face, edgecolor=shade, hatch=hatch
                    )
                    if trains and width > end_s / 30:
                        at = (begin_s + width / 2, place)
                        turn = 0 if width > end_s / 8 else 90
                        axes.text(
                            *at,
                            text,
                            color="white",
                            ha="center",
                            va="center",
                            fontsize=7,
                            rotation=turn,
                        )
            axes.set_title(f"{TITLES[label]} (hatched: starts, crossed: reshapes)", fontsize=8)
            axes.set_yticks(range(len(SHADES)), list(SHADES))
            axes.invert_yaxis()
            axes.set_xlabel("seconds")
            axes.set_xlim(0, end_s * 1.02)

        return draw_it

    draw(path, [panel(label) for label in shown], INCHES)


def figure_3(path: Path, results: Mapping[str, Result], sizes: Mapping[str, int]) -> None:
    """Draw the iterations per second of both jobs, a panel for each approach."""
    end_s = max(row.finished_s for result in results.values() for row in result.jobs)

    def panel(label: str) -> Callable[[Axes], None]:
        def draw_it(axes: Axes) -> None:
            for job, shade in SHADES.items():
                points = course(results[label], job, sizes)
                axes.step(*zip(*points, strict=True), where="post", color=shade, label=job)
            axes.set_title(TITLES[label], fontsize=9)
            axes.set_xlabel("seconds")
            axes.set_ylabel("iterations per second")
            axes.set_xlim(0, end_s)
            axes.set_ylim(0, SPEEDUP[4] / STEP_S * 1.3)
            axes.legend(fontsize=7, loc="upper right", ncols=2)

        return draw_it

    draw(path, [panel(label) for label in results], INCHES)


def figure_4(path: Path, results: Mapping[str, Result]) -> None:
    """Draw makespan and mean completion time, with the printed ones as marks."""
    ours = {
        label: metrics({str(row.job): row.finished_s for row in result.jobs})
        for label, result in results.items()
    }

    def panel(number: int, text: str) -> Callable[[Axes], None]:
        def draw_it(axes: Axes) -> None:
            for at, label in enumerate(ours):
                shade, _, hatch = style_of(STYLES[label], STYLES.values())
                fill = "white" if hatch else shade
                axes.bar(at, ours[label][number], 0.6, color=fill, edgecolor=shade, hatch=hatch)
            printed = [metrics(PRINTED[label])[number] for label in ours]
            axes.plot(range(len(printed)), printed, "k_", markersize=24, label="printed")
            axes.set_xticks(range(len(ours)), [TITLES[label] for label in ours])
            axes.set_ylabel(text)
            axes.margins(y=0.2)
            axes.legend(fontsize=7, loc="upper right")

        return draw_it

    draw(path, [panel(0, "makespan (s)"), panel(1, "mean completion time (s)")], INCHES)
