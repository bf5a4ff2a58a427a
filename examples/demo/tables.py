"""The summary as tables for people. Pure: what it draws is all in the summary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

Figures = Mapping[str, Any]
Cell = Callable[[Figures], str]
PHASES = {
    "save_s": "save",
    "stop_s": "stop",
    "container_stop_s": "container stop",
    "container_start_s": "container start",
    "start_s": "process start",
    "rest_s": "rest",
}
ORDERED = {"makespan": "makespan_s", "mean completion": "mean_jct_s"}
IDLE = ("unallocated", "reserved", "starting", "stopping")


def comparison(name: str, costs: Figures) -> RenderableType:
    """Every preset of a cost set, side by side."""
    presets: Mapping[str, Figures] = costs["presets"]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("seconds", min_width=18)
    for preset in presets:
        table.add_column(preset.replace("-termination", "-\ntermination"), justify="right")
    for label, cell in _rows():
        cells = [cell(figures) for figures in presets.values()]
        if any(text not in ("", "-") for text in cells):
            table.add_row(label, *cells)
    return Group(Text(_title(name, costs), "bold"), Text(), table)


def _title(name: str, costs: Figures) -> str:
    if name == "measured":
        return "Measured costs: containers cost what they cost on this machine"
    return (
        f"Assumed costs ({costs['set']}): a container takes {costs['container_start_s']:g} s more "
        f"to start and {costs['container_stop_s']:g} s more to stop; all else is measured"
    )


def _rows() -> list[tuple[str, Cell]]:
    return [
        ("makespan", partial(_spread, name="makespan_s")),
        ("mean completion", partial(_spread, name="mean_jct_s")),
        ("mean wait for GPUs", partial(_spread, name="mean_wait_s")),
        *_reshapes("down"),
        *_reshapes("up"),
        ("idle GPU-seconds", partial(_whole, name="gpu_idle_s")),
        *((f"  {part}", partial(_whole, name=f"gpu_{part}_s")) for part in IDLE),
        ("GPU use", lambda figures: f"{figures['gpu_use_ratio']:.0%}"),
        ("steps lost", partial(_count, name="steps_lost")),
        ("process restarts", partial(_count, name="process_restarts")),
        ("container restarts", partial(_count, name="container_restarts")),
    ]


def _reshapes(way: str) -> list[tuple[str, Cell]]:
    return [
        (f"reshape {way}", partial(_reshape, way=way)),
        *((f"  {text}", partial(_phase, way=way, phase=phase)) for phase, text in PHASES.items()),
    ]


def _spread(figures: Figures, name: str) -> str:
    """The mean; beneath it the least and the most, where there were repeats."""
    text = f"{figures[name]:.1f}"
    if len(figures["runs"]) == 1:
        return text
    least, most = figures["spread"][name]
    return f"{text}\n{least:.1f}–{most:.1f}"


def _reshape(figures: Figures, way: str) -> str:
    """The mean of one reshape; how many there were, where there was more than one in a run."""
    count = figures[f"reshape_{way}s"]
    if not count:
        return "-"
    return f"{figures[f'reshape_{way}_s']:.1f}" + (f" ×{count:g}" if count > 1 else "")


def _phase(figures: Figures, way: str, phase: str) -> str:
    seconds = figures[f"reshape_{way}_phases_s"][phase]
    return f"{seconds:.1f}" if figures[f"reshape_{way}s"] and abs(seconds) >= 0.05 else ""


def _whole(figures: Figures, name: str) -> str:
    return f"{figures[name]:.0f}"


def _count(figures: Figures, name: str) -> str:
    return f"{figures[name]:g}"


def order(costs: Figures) -> RenderableType:
    """The presets from the least to the most; ``≈`` where the repeats of two neighbours overlap."""
    if any(len(figures["runs"]) == 1 for figures in costs["presets"].values()):
        return Text("one run each says nothing of the order; REPEATS=3 shows the spread", "dim")
    lines = [f"{label}: {_ordered(costs['presets'], name)}" for label, name in ORDERED.items()]
    return Group(*map(Text, lines), Text("≈ within the spread: the repeats overlap", "dim"))


def _ordered(presets: Mapping[str, Figures], name: str) -> str:
    ranked = sorted(presets, key=lambda preset: (presets[preset][name], preset))
    text = ranked[0]
    for less, more in pairwise(ranked):
        overlap = presets[less]["spread"][name][1] >= presets[more]["spread"][name][0]
        text += f" {'≈' if overlap else '<'} {more}"
    return text


def kept(summary: Figures) -> RenderableType:
    """Each promise, and whether it held in every run."""
    held: dict[str, bool] = {}
    for costs in summary["costs"].values():
        for figures in costs["presets"].values():
            for run in figures["runs"]:
                for promise, kept_here in run["checks"].items():
                    held[promise] = held.get(promise, True) and kept_here
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("what was promised")
    table.add_column("held in every run")
    for promise, always in held.items():
        table.add_row(promise.replace("_", " "), "yes" if always else "NO")
    return table


def is_kept(summary: Figures) -> bool:
    """Whether every promise held in every run."""
    return all(
        held
        for costs in summary["costs"].values()
        for figures in costs["presets"].values()
        for run in figures["runs"]
        for held in run["checks"].values()
    )
