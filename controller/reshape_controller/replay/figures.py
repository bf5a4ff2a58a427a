"""The paper's Figures 6 to 11 and its Table VIII, drawn from our replays; SVG and PNG.

Does: draws with matplotlib, which is imported late and only here. Never: replays, or reads a file.
State: none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reshape_controller.replay.figure_styles import drawn, look, name, stroke
from reshape_controller.replay.inputs import ReplayError
from reshape_controller.replay.paper import DEFAULT
from reshape_controller.replay.rows import Interval
from reshape_controller.replay.shell import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE = {
    "font.family": "serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
    "legend.edgecolor": "none",
    "legend.framealpha": 0.8,  # many names may have no empty place to stand in
    "svg.hashsalt": "reshape",
    "svg.fonttype": "none",
    "text.parse_math": False,  # names are somebody else's, and no formulas
}
INCHES = (4.6, 2.6)
WIDE_INCHES = (7.2, 2.6)
SIDE_INCHES = 0.1
"""Beside each panel: a number below the last tick is wider than the tick."""
PNG_DPI = 200
GPU_TICKS = 4
WORKLOAD_LETTERS = 24
"""A longer name of a workload, which may be that of a file, would leave no room to draw in."""
SHORT_NAME = 18
"""Letters of a name that leave room for another beside it in a legend."""
FIRST_COLUMN = 0.42
"""Part of a table's width."""
Summaries = Mapping[str, Mapping[str, Mapping[str, Interval]]]
"""By workload, policy and metric."""


class NoMatplotlib(ReplayError):
    """Pictures need matplotlib, which is not installed."""


def draw(path: Path, panels: Sequence[Callable[[Axes], None]], inches: tuple[float, float]) -> None:
    """Write ``path`` as SVG and PNG, one axes for each panel. Raises NoMatplotlib, OSError."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise NoMatplotlib(
            "figures need matplotlib, which is not installed: pip install matplotlib"
        ) from None
    with rc_context(STYLE):
        figure: Figure = Figure(figsize=inches)
        figure.set_layout_engine("constrained", w_pad=SIDE_INCHES)
        for axes, panel in zip(
            figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
        ):
            panel(axes)
            if (legend := axes.get_legend()) is not None:
                legend.set_in_layout(False)  # a long name would leave no room for the panel
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
        figure.savefig(path.with_suffix(".png"), dpi=PNG_DPI)


BOUND = "lower_bound_makespan_s"


def figure_6(path: Path, summaries: Summaries) -> None:
    """Makespan (with its bound) and mean completion time by workload; whiskers are intervals."""
    draw(
        path,
        [
            lambda axes: _bars(axes, summaries, "makespan_s", "makespan (1,000 s)", bound=BOUND),
            lambda axes: _bars(axes, summaries, "mean_jct_s", "mean completion time (1,000 s)"),
        ],
        WIDE_INCHES,
    )


def _bars(axes: Axes, summaries: Summaries, metric: str, label: str, bound: str = "") -> None:
    approaches = drawn(list(next(iter(summaries.values()))))
    if bound:
        heights = [summary[approaches[0]][bound].median / 1000 for summary in summaries.values()]
        places = range(len(heights))
        ends = [at - 0.42 for at in places], [at + 0.42 for at in places]
        axes.hlines(heights, *ends, color="black", linewidth=1.2, zorder=3, label="lower bound")
    width = 0.8 / len(approaches)
    for number, approach in enumerate(approaches):
        shade, _, hatch = look(approach, approaches)
        found = [summary[approach][metric] for summary in summaries.values()]
        heights = [one.median / 1000 for one in found]
        below = [(one.median - one.low) / 1000 for one in found]
        above = [(one.high - one.median) / 1000 for one in found]
        axes.bar(
            [at + (number - (len(approaches) - 1) / 2) * width for at in range(len(found))],
            heights,
            width,
            yerr=(below, above),
            color="white" if hatch else shade,
            edgecolor=shade,
            hatch=hatch,
            linewidth=0.6,
            error_kw={"elinewidth": 0.8, "capsize": 2, "ecolor": "0.2"},
            label=name(approach),
        )
    axes.set_xticks(range(len(summaries)), list(map(_short, summaries)))
    axes.set_xlabel("workload")
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel(label)
    columns = 2 if all(len(name(one)) <= SHORT_NAME for one in approaches) else 1
    axes.margins(y=0.11 * math.ceil((len(approaches) + bool(bound)) / columns))
    axes.legend(fontsize=7, loc="upper left", ncols=columns)


def _short(workload: str) -> str:
    """The name of a workload, cut in its middle."""
    if len(workload) <= WORKLOAD_LETTERS:
        return workload
    half = (WORKLOAD_LETTERS - 1) // 2
    return f"{workload[:half]}…{workload[-half:]}"


def figure_7(path: Path, results: Mapping[str, Result]) -> None:
    """Pending and running jobs over time."""
    draw(
        path,
        [
            lambda axes: _course(axes, results, "pending", "pending jobs"),
            lambda axes: _course(axes, results, "running", "running jobs"),
        ],
        WIDE_INCHES,
    )


def figure_10(path: Path, results: Mapping[str, Result]) -> None:
    """Allocated GPUs over time."""

    def panel(axes: Axes) -> None:
        _course(axes, results, "allocated", "allocated GPUs")
        most = max((m.allocated for one in results.values() for m in one.course), default=0)
        if most % GPU_TICKS == 0:
            axes.set_yticks(range(0, most + 1, max(1, most // GPU_TICKS)))

    draw(path, [panel], INCHES)


def _course(axes: Axes, results: Mapping[str, Result], field: str, label: str) -> None:
    for approach, result in results.items():
        start_s = result.jobs[0].submitted_s
        axes.step(
            [(moment.at_s - start_s) / 1000 for moment in result.course],
            [getattr(moment, field) for moment in result.course],
            where="post",
            **stroke(approach, results),
            label=name(approach),
        )
    axes.set_xlabel("1,000 s since the first submission")
    axes.set_ylabel(label)
    _counts(axes)
    axes.legend(fontsize=7)


def _counts(axes: Axes) -> None:
    """Whole numbers from zero upwards."""
    from matplotlib.ticker import MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))
    axes.set_xlim(left=0)


def figure_8(path: Path, results: Mapping[str, Result]) -> None:
    """Pending jobs when each job is submitted."""

    def panel(axes: Axes) -> None:
        for approach, result in results.items():
            axes.step(
                range(1, len(result.pending) + 1),
                [pending for _, pending in result.pending],
                where="mid",
                **stroke(approach, results),
                label=name(approach),
            )
        axes.set_xlabel("job, in order of submission")
        axes.set_ylabel("pending jobs")
        _counts(axes)
        axes.legend(fontsize=7)

    draw(path, [panel], INCHES)


def figure_9(path: Path, times: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Distribution of completion times, all seeds together; a panel for each workload."""

    def panel(workload: str) -> Callable[[Axes], None]:
        def draw_it(axes: Axes) -> None:
            for approach, values in times[workload].items():
                ordered = sorted(values)
                axes.step(
                    [value / 1000 for value in ordered],
                    [(number + 1) / len(ordered) for number in range(len(ordered))],
                    where="post",
                    **stroke(approach, times[workload]),
                    label=name(approach),
                )
            axes.set_title(f"workload {_short(workload)}", fontsize=9)
            axes.set_xlabel("completion time (1,000 s)")
            axes.set_ylabel("part of the jobs")
            axes.set_ylim(0, 1.02)
            axes.set_xlim(left=0)
            axes.legend(fontsize=7, loc="lower right")

        return draw_it

    inches = WIDE_INCHES if len(times) > 1 else INCHES
    draw(path, [panel(workload) for workload in times], inches)


def figure_11(path: Path, results: Mapping[str, Result]) -> None:
    """Adding and removing events over time, counted up."""
    draw(
        path,
        [
            lambda axes: _events(axes, results, "up", "adding events"),
            lambda axes: _events(axes, results, "down", "removing events"),
        ],
        WIDE_INCHES,
    )


def _events(axes: Axes, results: Mapping[str, Result], which: str, label: str) -> None:
    for approach, result in results.items():
        if approach == DEFAULT and len(results) > 1:
            continue
        start_s = result.jobs[0].submitted_s
        at = sorted(one.asked_at_s - start_s for one in result.reshapes if getattr(one, which))
        end = result.metrics.makespan_s
        axes.step(
            [0.0, *(one / 1000 for one in at), end / 1000],
            [0, *range(1, len(at) + 1), len(at)],
            where="post",
            **stroke(approach, results),
            label=f"{name(approach)}: {len(at)}",
        )
    axes.set_xlabel("1,000 s since the first submission")
    axes.set_ylabel(label)
    _counts(axes)
    axes.legend(fontsize=7)


def table_8(path: Path, rows: Sequence[Sequence[str]], head: Sequence[str]) -> None:
    """The overheads as a table, ruled above, below the head, and below."""
    columns = len(head) - 1
    widths = [FIRST_COLUMN, *[(1.0 - FIRST_COLUMN) / max(1, columns)] * columns]

    def panel(axes: Axes) -> None:
        axes.axis("off")
        lines = [list(map(_short, head)), *(list(row) for row in rows)]
        height = 1.0 / (len(lines) + 1)
        for number, line in enumerate(lines):
            at = 1.0 - (number + 0.5) * height
            axes.text(0.0, at, line[0], va="center", fontsize=8)
            for column, text in enumerate(line[1:]):
                right = sum(widths[: column + 2])
                axes.text(right, at, text, va="center", ha="right", fontsize=8)
        for at in (1.0, 1.0 - height, 1.0 - len(lines) * height):
            axes.plot([0, 1], [at, at], color="black", linewidth=0.7)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.01)

    draw(path, [panel], (6.2, 0.22 * (len(rows) + 2)))
