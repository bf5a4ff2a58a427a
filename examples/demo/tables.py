"""The summary as tables for people. Pure: what it draws is all in the summary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

Figures = Mapping[str, Any]
PHASES = {
    "save_s": "save",
    "stop_s": "stop",
    "container_stop_s": "container stop",
    "container_start_s": "container start",
    "start_s": "process start",
    "rest_s": "rest",
}
IDLE = ("unallocated", "reserved", "stopping", "starting")


def comparison(name: str, costs: Figures) -> RenderableType:
    """Every preset of a cost set, side by side."""
    presets: Mapping[str, Figures] = costs["presets"]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("seconds")
    for preset in presets:
        table.add_column(preset.replace("-termination", "-\ntermination"), justify="right")
    for label, cell in _rows(presets):
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


def _rows(presets: Mapping[str, Figures]) -> list[tuple[str, Callable[[Figures], str]]]:
    rows = [
        ("makespan", lambda f: _spread(f, "makespan_s")),
        ("mean completion time", lambda f: _spread(f, "mean_jct_s")),
        ("mean wait for GPUs", lambda f: _spread(f, "mean_wait_s")),
    ]
    for way in ("down", "up"):
        rows.append((f"reshape {way}", lambda f, way=way: _reshape(f, way)))
        for phase, text in PHASES.items():
            rows.append((f"  {text}", lambda f, way=way, phase=phase: _phase(f, way, phase)))
    rows.append(("idle GPU-seconds", lambda f: f"{sum(f['gpu_idle_s'].values()):.0f}"))
    for part in IDLE:
        rows.append((f"  {part}", lambda f, part=part: f"{f['gpu_idle_s'][part]:.0f}"))
    rows += [
        ("GPU use", lambda f: f"{f['gpu_use_ratio']:.0%}"),
        ("steps lost", lambda f: f"{f['steps_lost']:g}"),
        ("process restarts", lambda f: f"{f['process_restarts']:g}"),
        ("container restarts", lambda f: f"{f['container_restarts']:g}"),
    ]
    return rows


def _spread(figures: Figures, name: str) -> str:
    """The mean; beneath it the least and the most, where there were repeats."""
    text = f"{figures[name]:.1f}"
    if len(figures["runs"]) == 1:
        return text
    least, most = figures["spread"][name]
    return f"{text}\n{least:.1f}–{most:.1f}"


def _reshape(figures: Figures, way: str) -> str:
    return f"{figures[f'reshape_{way}_s']:.1f}" if figures[f"reshape_{way}s"] else "-"


def _phase(figures: Figures, way: str, phase: str) -> str:
    seconds = figures[f"reshape_{way}_phases_s"][phase]
    return f"{seconds:.1f}" if figures[f"reshape_{way}s"] and abs(seconds) >= 0.05 else ""


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
