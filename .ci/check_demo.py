"""Checks the summary that `make demo` leaves: the hand-over happened, and nothing was lost.

Does: reads out/demo/summary.json. Never: runs the demo. Exit code 1, with every reason, if the
summary does not show what the README promises.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

SUMMARY = Path(__file__).resolve().parents[1] / "out" / "demo" / "summary.json"


def figures(value: object, name: str) -> list[object]:
    """Every value under a key of this name, at any depth."""
    if isinstance(value, dict):
        own = [value[name]] if name in value else []
        return own + [found for inner in value.values() for found in figures(inner, name)]
    if isinstance(value, list):
        return [found for inner in value for found in figures(inner, name)]
    return []


def numbers(summary: object, name: str, problems: list[str]) -> list[float]:
    """Figures of this name; their absence, or one that is no number, is a problem."""
    found = figures(summary, name)
    if not found:
        problems.append(f"{name} is not in the summary")
    numeric = [item for item in found if isinstance(item, (int, float))]
    if len(numeric) != len(found):
        problems.append(f"{name} is not a number: {found}")
    return [float(item) for item in numeric]


def main() -> int:
    """Print what was found; 1 if something is missing or was lost."""
    try:
        summary = json.loads(SUMMARY.read_text())
    except (OSError, ValueError) as error:
        print(f"FAILED  {SUMMARY}: {error}; `make demo` writes it")
        return 1
    problems: list[str] = []
    for name in ("steps_lost", "container_restarts"):
        lost = numbers(summary, name, problems)
        if any(lost):
            problems.append(f"{name} is {lost}; every figure has to be 0")
    for name in ("reshape_downs", "reshape_ups"):
        seen = numbers(summary, name, problems)
        if seen and not any(seen):
            problems.append(f"{name} is 0 everywhere: nothing was reshaped")
    promises = figures(summary, "checks")
    if len(promises) != 1 or not isinstance(promises[0], dict) or not promises[0]:
        problems.append("checks is not in the summary")
    else:
        broken = [name for name, kept in promises[0].items() if kept is not True]
        problems += [f"not kept: {name}" for name in broken]
    for problem in problems:
        print(f"FAILED  {problem}")
    if not problems:
        print("ok      reshaped down and up, 0 steps lost, no container restarted")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
