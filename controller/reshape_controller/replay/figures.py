"""The paper's Figures 6 to 11 and its Table VIII, drawn from our replays as SVG and PNG.

Only this module imports matplotlib, and late.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from reshape_controller.replay.figure_styles import labels_in_figures, name, stroke, style_of
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
    "legend.framealpha": 0.8,  # a legend with many names may not fit
    "svg.hashsalt": "reshape",
    "svg.fonttype": "none",
    "text.parse_math": False,  # names of workloads are no formulas
}
INCHES = (4.6, 2.6)
WIDE_INCHES = (7.2, 2.6)
SIDE_INCHES = 0.1
"""Margin of each panel: a number below the last tick is wider than the tick."""
PNG_DPI = 200
GPU_TICKS = 4
WORKLOAD_LETTERS = 24
"""Longest name of a workload; a longer one, such as a file's, would leave no room for the panel."""
SHORT_NAME = 18
"""Longest name that leaves room for another beside it in a legend."""
FIRST_COLUMN = 0.42
"""Part of a table's width for its first column."""
DAY_S = 86_400.0
DAYS_FROM_S = 5 * DAY_S
"""Times that reach this far are drawn in days."""
WIDE_TIMES = 50.0
"""Ratio of the longest completion time to the median from which the axis is logarithmic."""
MOMENTS_MAX = 3000
"""Longest course that is drawn as it is; of a longer one the means over its parts are."""
PARTS = 240
Summaries = Mapping[str, Mapping[str, Mapping[str, Interval]]]
"""Intervals by workload, policy and metric."""


class NoMatplotlib(ReplayError):
    """Figures need matplotlib, which is not installed."""


def draw(path: Path, panels: Sequence[Callable[[Axes], None]], inches: tuple[float, float]) -> None:
    """Write ``path`` as SVG and PNG, with axes for each panel. Raises NoMatplotlib, OSError."""
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


class Unit(NamedTuple):
    """A unit of time: its seconds, and its name on an axis."""

    seconds: float
    name: str


def unit_of(longest_s: float) -> Unit:
    """Return the unit that suits times of up to ``longest_s``."""
    return Unit(DAY_S, "days") if longest_s >= DAYS_FROM_S else Unit(1000.0, "1,000 s")


def demand(path: Path, course: Sequence[tuple[float, float]]) -> None:
    """Draw the GPUs that jobs ask for from each time on. Raises NoMatplotlib, OSError."""
    unit = unit_of(course[-1][0])

    def panel(axes: Axes) -> None:
        times = [at_s / unit.seconds for at_s, _ in course]
        axes.fill_between(times, [gpus for _, gpus in course], step="post", color="#9ab4cf")
        axes.set_xlabel(f"time ({unit.name})")
        axes.set_ylabel("GPUs asked for")
        axes.set_xlim(0.0, max(times))
        axes.set_ylim(bottom=0.0)

    draw(path, [panel], WIDE_INCHES)


BOUND = "lower_bound_makespan_s"


def figure_6(path: Path, summaries: Summaries) -> None:
    """Draw makespan (with its bound) and mean completion time by workload, with intervals."""
    draw(
        path,
        [
            lambda axes: _bars(axes, summaries, "makespan_s", "makespan", bound=BOUND),
            lambda axes: _bars(axes, summaries, "mean_jct_s", "mean completion time"),
        ],
        WIDE_INCHES,
    )


def _bars(axes: Axes, summaries: Summaries, metric: str, label: str, bound: str = "") -> None:
    approaches = labels_in_figures(list(next(iter(summaries.values()))))
    unit = unit_of(max(one[each][metric].high for one in summaries.values() for each in approaches))
    if bound:
        heights = [one[approaches[0]][bound].median / unit.seconds for one in summaries.values()]
        places = range(len(heights))
        ends = [at - 0.42 for at in places], [at + 0.42 for at in places]
        axes.hlines(heights, *ends, color="black", linewidth=1.2, zorder=3, label="lower bound")
    width = 0.8 / len(approaches)
    for number, approach in enumerate(approaches):
        shade, _, hatch = style_of(approach, approaches)
        found = [summary[approach][metric] for summary in summaries.values()]
        heights = [one.median / unit.seconds for one in found]
        below = [(one.median - one.low) / unit.seconds for one in found]
        above = [(one.high - one.median) / unit.seconds for one in found]
        has_range = any(below) or any(above)  # a single seed has none, and its caps would be dots
        axes.bar(
            [at + (number - (len(approaches) - 1) / 2) * width for at in range(len(found))],
            heights,
            width,
            yerr=(below, above) if has_range else None,
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
    axes.set_ylabel(f"{label} ({unit.name})")
    columns = 2 if all(len(name(one)) <= SHORT_NAME for one in approaches) else 1
    axes.margins(y=0.11 * math.ceil((len(approaches) + bool(bound)) / columns))
    axes.legend(fontsize=7, loc="upper left", ncols=columns)


def loads(
    path: Path, summaries: Mapping[str, Mapping[float, Mapping[str, Mapping[str, Interval]]]]
) -> None:
    """Draw the mean completion time against the load, a panel for each workload, with intervals.
    ``summaries``: intervals by workload, load, policy and metric."""

    def panel(workload: str) -> Callable[[Axes], None]:
        def draw_it(axes: Axes) -> None:
            by_load = summaries[workload]
            approaches = list(next(iter(by_load.values())))
            for approach in approaches:
                found = [summary[approach]["mean_jct_s"] for summary in by_load.values()]
                middle = [one.median / 1000 for one in found]
                ends = [(one.low / 1000, one.high / 1000) for one in found]
                below = [at - low for at, (low, _) in zip(middle, ends, strict=True)]
                above = [high - at for at, (_, high) in zip(middle, ends, strict=True)]
                line = stroke(approach, approaches)
                axes.errorbar(
                    list(by_load), middle, (below, above), **line, capsize=2, label=name(approach)
                )
            axes.set_title(f"workload {_short(workload)}", fontsize=9)
            axes.set_xlabel("load (times as fast)")
            _log_of_numbers(axes)
            axes.set_xticks(list(by_load), [f"{load:g}" for load in by_load])
            if workload == next(iter(summaries)):
                axes.set_ylabel("mean completion time (1,000 s)")
                _legend_below(axes)

        return draw_it

    inches = (max(WIDE_INCHES[0], 2.2 * len(summaries)), 3.6)
    draw(path, [panel(workload) for workload in summaries], inches)


def _log_of_numbers(axes: Axes) -> None:
    """Set a logarithmic axis with plain numbers, because the style parses no formulas."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def _legend_below(axes: Axes) -> None:
    """Set a legend for all panels below them."""
    figure = axes.get_figure()
    if figure is not None:
        figure.legend(
            *axes.get_legend_handles_labels(), fontsize=7, loc="outside lower center", ncols=4
        )


def _short(workload: str) -> str:
    """Return the name of a workload, shortened in its middle."""
    if len(workload) <= WORKLOAD_LETTERS:
        return workload
    half = (WORKLOAD_LETTERS - 1) // 2
    return f"{workload[:half]}…{workload[-half:]}"


def figure_7(path: Path, results: Mapping[str, Result]) -> None:
    """Draw pending and running jobs over time."""
    draw(
        path,
        [
            lambda axes: _course(axes, results, "pending", "pending jobs"),
            lambda axes: _course(axes, results, "running", "running jobs"),
        ],
        WIDE_INCHES,
    )


def figure_10(path: Path, results: Mapping[str, Result]) -> None:
    """Draw allocated GPUs over time."""

    def panel(axes: Axes) -> None:
        _course(axes, results, "allocated", "allocated GPUs")
        most = max((m.allocated for one in results.values() for m in one.course), default=0)
        if most % GPU_TICKS == 0:
            axes.set_yticks(range(0, most + 1, max(1, most // GPU_TICKS)))

    draw(path, [panel], INCHES)


def course(result: Result, field: str) -> tuple[list[float], list[float]]:
    """Return the seconds since the first submission, and a field's values from then on; 0 at the
    end, when the last job gives its GPUs back. Of a long course the means over its parts."""
    start_s = result.jobs[0].submitted_s
    times = [moment.at_s - start_s for moment in result.course]
    values = [float(getattr(moment, field)) for moment in result.course]
    if len(times) > MOMENTS_MAX:
        times, values = _means(times, values)
    return [*times, *times[-1:]], [*values, *(0.0 for _ in times[-1:])]


def _means(times: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return the begins of ``PARTS`` equal parts of a step function and its mean over each of
    them, and the end."""
    begin, end = times[0], times[-1]
    edges = [begin + (end - begin) * part / PARTS for part in range(PARTS + 1)]
    means, at = [], 0
    for left, right in pairwise(edges):
        area, since = 0.0, left
        while since < right:
            until = min(times[at + 1], right) if at + 1 < len(times) else right
            area += values[at] * (until - since)
            since = until
            if at + 1 < len(times) and times[at + 1] <= since:
                at += 1
        means.append(area / (right - left))
    return edges, [*means, means[-1]]


def _longest_s(results: Mapping[str, Result]) -> float:
    return max(result.metrics.makespan_s for result in results.values())


def _course(axes: Axes, results: Mapping[str, Result], field: str, label: str) -> None:
    unit = unit_of(_longest_s(results))
    for approach, result in results.items():
        times, values = course(result, field)
        axes.step(
            [at_s / unit.seconds for at_s in times],
            values,
            where="post",
            **stroke(approach, results),
            label=name(approach),
        )
    axes.set_xlabel(f"{unit.name} since the first submission")
    axes.set_ylabel(label)
    _counts(axes)
    axes.legend(fontsize=7)


def _counts(axes: Axes) -> None:
    """Set an axis of whole numbers from zero upwards."""
    from matplotlib.ticker import MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))
    axes.set_xlim(left=0)


def figure_8(path: Path, results: Mapping[str, Result]) -> None:
    """Draw the pending jobs at each submission."""

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
    """Draw the distribution of completion times over all seeds, a panel for each workload."""

    def panel(workload: str) -> Callable[[Axes], None]:
        def draw_it(axes: Axes) -> None:
            every = sorted(chain.from_iterable(times[workload].values()))
            unit = unit_of(every[-1])
            for approach, values in times[workload].items():
                ordered = sorted(values)
                axes.step(
                    [value / unit.seconds for value in ordered],
                    [(number + 1) / len(ordered) for number in range(len(ordered))],
                    where="post",
                    **stroke(approach, times[workload]),
                    label=name(approach),
                )
            axes.set_title(f"workload {_short(workload)}", fontsize=9)
            axes.set_xlabel(f"completion time ({unit.name})")
            axes.set_ylabel("part of the jobs")
            axes.set_ylim(0, 1.02)
            if every[-1] > WIDE_TIMES * median(every):
                axes.set_xscale("log")
                axes.xaxis.set_major_formatter("{x:g}")
            else:
                axes.set_xlim(left=0)
            axes.legend(fontsize=7, loc="lower right")

        return draw_it

    inches = WIDE_INCHES if len(times) > 1 else INCHES
    draw(path, [panel(workload) for workload in times], inches)


def figure_11(path: Path, results: Mapping[str, Result]) -> None:
    """Draw the cumulative adding and removing events over time."""
    draw(
        path,
        [
            lambda axes: _events(axes, results, "up", "adding events"),
            lambda axes: _events(axes, results, "down", "removing events"),
        ],
        WIDE_INCHES,
    )


def _events(axes: Axes, results: Mapping[str, Result], which: str, label: str) -> None:
    unit = unit_of(_longest_s(results))
    for approach, result in results.items():
        if approach == DEFAULT and len(results) > 1:
            continue
        start_s = result.jobs[0].submitted_s
        at = sorted(one.asked_at_s - start_s for one in result.reshapes if getattr(one, which))
        end = result.metrics.makespan_s
        axes.step(
            [0.0, *(at_s / unit.seconds for at_s in at), end / unit.seconds],
            [0, *range(1, len(at) + 1), len(at)],
            where="post",
            **stroke(approach, results),
            label=f"{name(approach)}: {len(at)}",
        )
    axes.set_xlabel(f"{unit.name} since the first submission")
    axes.set_ylabel(label)
    _counts(axes)
    axes.legend(fontsize=7)


def table_8(path: Path, rows: Sequence[Sequence[str]], head: Sequence[str]) -> None:
    """Draw the overheads as a table with rules above and below its head and at its end."""
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
