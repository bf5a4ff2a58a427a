"""The pictures of the demo: who had which GPU, iterations per second, and the presets compared.

Does: the paper's Figures 1 and 3 for each preset (lanes of GPUs and jobs, and the iterations per
second of both jobs, with a mark for each reshape), all presets on one page, and Figure 4 (makespan
and mean completion time) as bars with the spread over the repeats. SVG and PNG, readable without
colour. Never: draws what was not observed. State: files below the given folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metrics import begin_of, end_of
from observed import Run
from rates import WINDOW_S, rates

from reshape_controller.cli.timeline import chart
from reshape_controller.cli.timeline.reshapes import reshapes_of
from reshape_controller.cli.timeline.trace_events import trace_events

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINES = (("black", "-"), ("0.45", (0, (3, 1.5))), ("0.6", ":"))
"""Shade and dashes of a job's line, in order of submission."""
ALL_PRESETS = "all-presets"
"""Name of the picture with every preset of a run, one below the other."""
LANES_INCHES, RATES_INCHES, MARGIN_INCHES = 1.9, 1.7, 1.2


def draw_all(runs: Mapping[str, Mapping[str, Run]], summary: Any, out: Path) -> list[Path]:
    """Every picture of the first run of each preset, by cost set; gives the SVG files."""
    written = []
    for label, presets in runs.items():
        folder = out / "figures" / label
        folder.mkdir(parents=True, exist_ok=True)
        said = _said(label, summary["costs"][label])
        for name, run in presets.items():
            written.append(_draw_runs({name: run}, said, folder / name))
            trace = trace_events(run.timeline, {"preset": name, "costs": said, "paced": "true"})
            (folder / f"{name}.trace.json").write_text(json.dumps(trace) + "\n")
        if len(presets) > 1:
            written.append(_draw_runs(presets, said, folder / ALL_PRESETS))
            written.append(
                _draw_bars(summary["costs"][label]["presets"], said, folder / "compared")
            )
    return written


def _said(label: str, costs: Mapping[str, Any]) -> str:
    if label == "measured":
        return "measured costs, paced steps"
    return (
        f"assumed:{costs['set']} costs (containers +{costs['container_start_s']:g} s start, "
        f"+{costs['container_stop_s']:g} s stop), paced steps"
    )


def _draw_runs(runs: Mapping[str, Run], said: str, path: Path) -> Path:
    """Lanes above rates, one pair for each run, on one time axis."""
    height = MARGIN_INCHES + len(runs) * (LANES_INCHES + RATES_INCHES)
    figure = chart.new_figure(2 * len(runs), height, [LANES_INCHES, RATES_INCHES] * len(runs))
    axes = figure.axes
    for number, (name, run) in enumerate(runs.items()):
        lanes, below = axes[2 * number], axes[2 * number + 1]
        chart.draw(lanes, run.timeline)
        lanes.set_title(f"{name}: {said}", loc="left", fontsize=10, pad=18)
        _draw_rates(below, run)
    axes[-1].set_xlim(0, max(end_of(run) - begin_of(run) for run in runs.values()) * 1.01)
    axes[-1].set_xlabel("seconds since the first submission")
    timelines = [run.timeline for run in runs.values()]
    figure.legend(
        handles=chart.legend(timelines),
        loc="outside lower left",
        ncols=4,
        fontsize=8,
        frameon=False,
    )
    return _write(figure, path)


def _draw_rates(axes: Axes, run: Run) -> None:
    """Iterations per second of each job, as its steps were seen."""
    names = chart.letters(run.timeline)
    for number, job in enumerate(run.jobs):
        shade, dashes = LINES[number % len(LINES)]
        times_s, values = rates(run, job)
        axes.plot(
            times_s,
            values,
            color=shade,
            linestyle=dashes,
            linewidth=1.6,
            label=f"{names[job.id]} {job.name}",
            gid=f"rate-{job.name}",
        )
    for reshape in reshapes_of(run.timeline):
        chart.mark(axes, reshape, names[reshape.job], begin_of(run), text=False)
    axes.set_ylabel(f"iterations/s\n(over {WINDOW_S:g} s)", fontsize=8)
    axes.set_ylim(bottom=0)
    axes.tick_params(labelsize=8)
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.98), fontsize=8, ncols=2, frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _draw_bars(presets: Mapping[str, Any], said: str, path: Path) -> Path:
    """Makespan and mean completion time; whiskers from the least to the most of the repeats."""
    figure = chart.new_figure(1, 0.9 + 0.62 * len(presets))
    (axes,) = figure.axes
    bars = (
        ("makespan_s", "makespan", "0.35", ""),
        ("mean_jct_s", "mean completion time", "0.85", "///"),
    )
    for row, figures in enumerate(presets.values()):
        for offset, (name, _, shade, hatch) in zip((-0.19, 0.19), bars, strict=True):
            value, (least, most) = figures[name], figures["spread"][name]
            axes.barh(
                row + offset,
                value,
                height=0.36,
                facecolor=shade,
                hatch=hatch,
                edgecolor="black",
                linewidth=0.6,
                xerr=[[value - least], [most - value]] if most > least else None,
                capsize=3,
                gid=name,
            )
            axes.annotate(
                f"{value:.0f} s", (most, row + offset), xytext=(4, 0),
                textcoords="offset points", va="center", fontsize=8,
            )  # fmt: skip
    axes.set_yticks(range(len(presets)), list(presets), fontsize=9)
    axes.set_ylim(len(presets) - 0.5, -0.5)
    axes.set_xlabel("seconds")
    axes.set_title(f"Makespan and mean completion time: {said}", loc="left", fontsize=10)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=shade, hatch=hatch, edgecolor="black", label=text)
        for _, text, shade, hatch in bars
    ]
    figure.legend(handles=handles, loc="outside lower left", ncols=2, fontsize=8, frameon=False)
    return _write(figure, path)


def _write(figure: Any, path: Path) -> Path:
    for suffix in chart.SUFFIXES:
        chart.write(figure, path.with_name(path.name + suffix))
    return path.with_name(path.name + ".svg")
