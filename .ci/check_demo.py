"""Checks the summary that `make demo` leaves: what the README promises of it, and its structure.

Does: reads out/demo/summary.json. Never: runs the demo, or judges how fast the machine was: late
steps make the figures incomparable, which is said, and break no promise. Exit code 1, with every
reason, if the summary does not show what the README promises.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SUMMARY = Path(__file__).resolve().parents[1] / "out" / "demo" / "summary.json"
PRESETS = ("termination", "adaptive")
METRICS = (
    "makespan_s", "mean_jct_s", "median_jct_s", "p95_jct_s", "mean_wait_s", "gpu_use_ratio",
    "gpu_idle_s", "gpu_unallocated_s", "gpu_reserved_s", "gpu_starting_s", "gpu_stopping_s",
    "overhead_ratio", "reshape_ups", "reshape_downs", "reshape_up_s", "reshape_down_s",
    "steps_lost", "process_restarts", "container_restarts",
)  # fmt: skip
IDLE = ("unallocated", "reserved", "starting", "stopping")


def main() -> int:
    """Print what was found; 1 if something is missing or was lost."""
    try:
        summary = json.loads(SUMMARY.read_text())
    except (OSError, ValueError) as error:
        print(f"FAILED  {SUMMARY}: {error}; `make demo` writes it")
        return 1
    problems = problems_of(summary)
    for problem in problems:
        print(f"FAILED  {problem}")
    if not problems and summary["valid"] is not True:
        print(f"NOTE    {late_of(summary)}")
    if not problems:
        print("ok      both presets, reshaped down and up, 0 steps lost, every promise kept")
    return 1 if problems else 0


def late_of(summary: Any) -> str:
    """What to say of a run whose figures cannot be compared; its promises still had to hold."""
    return f"{summary['late_steps']} steps came late: the machine was too busy to compare presets"


def problems_of(summary: Any) -> list[str]:
    """Everything that a summary of `make demo` lacks; more presets than its two may be there."""
    try:
        measured = summary["costs"]["measured"]["presets"]
        problems = [f"no figures of {name}" for name in PRESETS if name not in measured]
        if summary["paced"] is not True or not isinstance(summary["late_steps"], int):
            problems.append("paced and late_steps do not say what was paced")
        for name, figures in measured.items():
            problems += [f"{name}: {problem}" for problem in of_preset(figures)]
        for what in ("reshape_downs", "reshape_ups"):
            if not any(figures[what] for figures in measured.values()):
                problems.append(f"{what} is 0 everywhere: nothing was reshaped")
        if measured["adaptive"]["container_restarts"] != 0:
            problems.append("adaptive restarted a container")
    except (KeyError, TypeError) as error:
        return [f"the summary has another structure: {error!r}"]
    return problems


def of_preset(figures: Any) -> list[str]:
    """What is wrong with the figures of one preset."""
    problems = [f"{name} is no number" for name in METRICS if not is_number(figures.get(name))]
    parts_s = sum(figures[f"gpu_{part}_s"] for part in IDLE)
    if abs(figures["gpu_idle_s"] - parts_s) > 1.0:
        problems.append(f"the parts of gpu_idle_s add up to {parts_s}")
    if figures["steps_lost"] != 0:
        problems.append(f"steps_lost is {figures['steps_lost']}")
    for run in figures["runs"]:
        problems += [f"not kept: {name}" for name, kept in run["checks"].items() if not kept]
    return problems


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


if __name__ == "__main__":
    sys.exit(main())
