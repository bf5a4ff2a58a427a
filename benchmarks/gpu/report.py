"""What the run on a GPU machine found: one result for each step, as JSON and as text.

Does: holds values, reads and writes files. Never: imports more than the standard library.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

SCHEMA = 1
IN_HEAD = ("machine", "uuid")
"""Figures that the head of the text has already."""


class Outcome(StrEnum):
    """How a step ended."""

    PASSED = "passed"
    FAILED = "failed"
    """A check did not hold, or the step broke."""
    TIMED_OUT = "timed-out"
    """Its limit was over; everything that it had started was killed."""
    REFUSED = "refused"
    """This machine cannot do it; the reason says why."""
    NOT_RUN = "not-run"
    """The run ended before, or its time was over."""


BAD = (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.NOT_RUN)


@dataclass(frozen=True, slots=True)
class Check:
    """A statement that must hold, and what was found."""

    text: str
    ok: bool
    found: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a step; ``facts`` are its figures, complete or as far as it came."""

    name: str
    title: str
    outcome: Outcome = Outcome.NOT_RUN
    reason: str = ""
    took_s: float = 0.0
    limit_s: float = 0.0
    ran_on: tuple[str, ...] = ()
    """``GPU``, or the parts that a stand-in replaced."""
    checks: tuple[Check, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """A whole run."""

    began: str
    stand_in: str
    """What replaced the GPU; empty on a machine with one."""
    machine: dict[str, Any]
    results: tuple[Result, ...]
    took_s: float = 0.0
    limit_s: float = 0.0
    schema: int = SCHEMA

    @property
    def good(self) -> bool:
        """Whether no step failed, timed out or was left out for want of time."""
        return not any(result.outcome in BAD for result in self.results)


def write(path: Path, document: Any) -> None:
    """Write JSON so that a reader never finds half of it."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(document, indent=1, default=str) + "\n")
    os.replace(partial, path)


def write_result(path: Path, result: Result) -> None:
    write(path, asdict(result))


def read_result(path: Path, known: Result) -> Result:
    """Return the result in a file; ``known`` with a reason if there is none."""
    try:
        document = json.loads(path.read_text())
        checks = tuple(Check(**check) for check in document.pop("checks"))
        document["outcome"] = Outcome(document["outcome"])
        document["ran_on"] = tuple(document["ran_on"])
        return Result(**document, checks=checks)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return replace(known, reason=f"it left no result: {error}")


def text(report: Report) -> str:
    """Return the report for a reader: the machine, then each step with checks and figures."""
    lines = [f"Reshape on a GPU machine, {report.began}, {report.took_s:.0f} s"]
    if report.stand_in:
        lines.append(f"NO GPU WAS USED: {report.stand_in}")
    lines += [f"  {name}: {value}" for name, value in report.machine.items()]
    for result in report.results:
        lines += ["", *_lines(result)]
    counts = [(o, sum(r.outcome is o for r in report.results)) for o in Outcome]
    lines += ["", ", ".join(f"{count} {outcome}" for outcome, count in counts if count)]
    return "\n".join(lines) + "\n"


def line(result: Result) -> str:
    """Return a step's outcome in one line."""
    head = f"{result.outcome:<9} {result.took_s:5.1f} s  {result.title}"
    return f"{head}: {result.reason}" if result.reason else head


def _lines(result: Result) -> list[str]:
    lines = [line(result)]
    if result.ran_on:
        lines.append(f"    ran on: {', '.join(result.ran_on)}")
    for check in result.checks:
        found = f" ({check.found})" if check.found else ""
        lines.append(f"    {'ok ' if check.ok else 'BAD'} {check.text}{found}")
    for name, value in result.facts.items():
        lines += [] if name in IN_HEAD or value == {} else _fact(name, value)
    return lines


def _fact(name: str, value: Any) -> list[str]:
    """Return one figure; a list of measurements is a table with a line for each."""
    if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
        columns = list(dict.fromkeys(column for row in value for column in row))
        lines = [f"    {name}:"]
        for column in columns:
            cells = " ".join(f"{_cell(row.get(column)):>9}" for row in value)
            lines.append(f"      {column:<26} {cells}")
        return lines
    if isinstance(value, dict):
        return [f"    {name}:", *(f"      {key:<26} {_cell(v)}" for key, v in value.items())]
    return [f"    {name}: {_cell(value)}"]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return "-" if value is None else str(value)
