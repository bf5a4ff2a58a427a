"""Checks the summary that `make demo` leaves: the hand-over happened, and nothing was lost.

Does: reads out/demo/summary.json. Never: runs the demo. Exit code 1, with every reason, if the
summary does not show what the README promises.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SUMMARY = Path(__file__).resolve().parents[1] / "out" / "demo" / "summary.json"
COSTS, PRESET = "measured", "adaptive"
"""The part of the summary that shows our own scheduler with what things really cost."""


def problems_of(summary: dict[str, Any]) -> list[str]:
    """Everything that the summary lacks or that was not kept. Raises KeyError for a lack."""
    problems = [] if summary["valid"] is True else ["the machine was too slow for the paced steps"]
    presets = summary["costs"][COSTS]["presets"]
    for name, found in presets.items():
        if found["steps_lost"] != 0:
            problems.append(f"{name}: {found['steps_lost']} steps lost, not 0")
        for run in found["runs"]:
            problems += [f"{name}: not kept: {c}" for c, held in run["checks"].items() if not held]
            if not run["checks"]:
                problems.append(f"{name}: a run without any check")
    ours = presets[PRESET]
    if ours["container_restarts"] != 0:
        problems.append(f"{PRESET}: {ours['container_restarts']} container restarts, not 0")
    if ours["reshape_downs"] < 1:
        problems.append(f"{PRESET}: no running job gave GPUs to the newcomer")
    return problems


def main() -> int:
    """Print what was found; 1 if something is missing or was lost."""
    try:
        summary = json.loads(SUMMARY.read_text())
        problems = problems_of(summary)
    except (OSError, ValueError) as error:
        print(f"FAILED  {SUMMARY}: {error}; `make demo` writes it")
        return 1
    except (KeyError, TypeError, AttributeError) as error:
        print(f"FAILED  {SUMMARY}: has another shape than this check knows ({error!r})")
        return 1
    for problem in problems:
        print(f"FAILED  {problem}")
    if problems:
        return 1
    ours = summary["costs"][COSTS]["presets"][PRESET]
    print(
        f"ok      0 steps lost, no container restarted; {PRESET}: "
        f"{ours['reshape_downs']} down, {ours['reshape_ups']} up"
    )
    if ours["reshape_ups"] < 1:
        print("note    no GPUs were given back: on this machine that was predicted not to pay")
    return 0


if __name__ == "__main__":
    sys.exit(main())
