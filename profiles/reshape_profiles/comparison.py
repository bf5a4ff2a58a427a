"""The comparison of two recorded runs of a script: one without stops, one with them. Pure.

Does: lists every difference in the order in which it arose, and names its likely cause. Runs on the
same devices must agree to the last bit; runs on other numbers of devices round differently, so that
a tolerance is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from reshape_profiles.recorded_run import Recorded

DEVIATION_FLOOR = 1e-5
"""Relative difference by rounding that is always allowed between other numbers of devices."""
DEVIATION_FACTOR = 2.0
"""A stopped run may differ by so many times the difference of runs without stops."""


class Kind(StrEnum):
    """Kind of a difference."""

    STEPS = "steps"
    """A step was not trained exactly once."""
    VALUE = "value"
    """A step has another loss or metric."""
    OBJECT = "object"
    """A History or an attribute of a callback differs."""
    FILE = "file"
    EXIT = "exit"


@dataclass(frozen=True, slots=True)
class Difference:
    """One value of the run without stops that the stopped run does not have."""

    kind: Kind
    subject: str
    """The value: for example "step 21: loss", "file log.txt", "exit code"."""
    straight: str
    stopped: str
    cause: str

    @property
    def text(self) -> str:
        """Return the difference as a sentence."""
        return f"{self.subject} is {self.stopped}, and {self.straight} without a stop; {self.cause}"


def differences(
    straight: Recorded, stopped: Recorded, tolerance: float = 0.0
) -> tuple[Difference, ...]:
    """Return all differences, the earliest first; of the values of steps only the earliest step,
    for all later ones follow from it. ``tolerance``: relative, of numbers."""
    return (
        *_of_steps(straight, stopped, tolerance),
        *_of_ends(straight, stopped, tolerance),
        *_of_files(straight, stopped, tolerance),
        *_of_exit(straight, stopped),
    )


def deviation(one: Recorded, other: Recorded) -> float:
    """Return the largest relative difference of a recorded number of any step."""
    others = dict(other.steps)
    worst = 0.0
    for step, values in one.steps:
        for name, value in values.items():
            worst = max(worst, _distance(value, others.get(step, {}).get(name)))
    return worst


def _of_steps(straight: Recorded, stopped: Recorded, tolerance: float) -> Iterator[Difference]:
    trained: dict[int, dict[str, Any]] = {}
    for step, values in stopped.steps:
        if step in trained:
            yield Difference(
                Kind.STEPS,
                f"step {step}",
                "trained once",
                "trained twice",
                "the checkpoint at the stop did not hold the newest step",
            )
        trained[step] = values
    expected = dict(straight.steps)
    first: int | None = None
    for step, values in straight.steps:
        found = trained.get(step)
        if found is None:
            cause = "the resumed process skipped it, or ended before it"
            yield Difference(Kind.STEPS, f"step {step}", "trained", "missing", cause)
            continue
        for name, value in values.items():
            if first in (None, step) and not _is_same(value, found.get(name), tolerance):
                first = step
                cause = _cause_of_step(stopped, step)
                subject = f"step {step}: {name}"
                one, other = _shown(value), _shown(found.get(name))
                yield Difference(Kind.VALUE, subject, one, other, cause)
    for step in sorted(set(trained) - set(expected)):
        cause = "the resumed process trained on after the end"
        yield Difference(Kind.STEPS, f"step {step}", "missing", "trained", cause)


def _cause_of_step(stopped: Recorded, step: int) -> str:
    before = [stop for stop in stopped.stops if stop < step]
    if not before:
        return "no stop came before it: training itself does not repeat; set its seeds"
    reason = f" ({stopped.reason})" if stopped.reason else ""
    if step == before[-1] + 1:
        return (
            f"it is the first step after the stop at step {before[-1]}: the data, its random "
            f"numbers or other state that no checkpoint holds{reason}"
        )
    return (
        f"{step - before[-1]} steps after the stop at step {before[-1]}: state that acts later, "
        f"such as a schedule, a callback or a moving average{reason}"
    )


def _of_ends(straight: Recorded, stopped: Recorded, tolerance: float) -> Iterator[Difference]:
    found = dict(stopped.ends)
    for name, value in dict(straight.ends).items():
        if tolerance and isinstance(value, str) and "] " in value:
            continue  # the digest of an array says nothing about how far two arrays differ
        if not _is_same(value, found.get(name), tolerance):
            if name.startswith("History"):
                cause = "the resumed process did not continue the History"
            else:
                cause = "the resumed process did not restore this object of the script"
            yield Difference(Kind.OBJECT, name, _shown(value), _shown(found.get(name)), cause)


def _of_files(straight: Recorded, stopped: Recorded, tolerance: float) -> Iterator[Difference]:
    for name in sorted({*straight.files, *stopped.files}):
        one, other = straight.files.get(name), stopped.files.get(name)
        if one == other or (tolerance and one and other):
            continue
        cause = (
            "the script writes it anew after a stop; open it for appending, or write it in a "
            "callback that holds its contents"
        )
        if one is None:
            cause = "the resumed process writes a file that a run without a stop does not have"
        yield Difference(Kind.FILE, f"file {name}", one or "missing", other or "missing", cause)


def _of_exit(straight: Recorded, stopped: Recorded) -> Iterator[Difference]:
    if straight.exit_code != stopped.exit_code:
        cause = f"the resumed process failed or left early.{stopped.output}"
        one, other = str(straight.exit_code), str(stopped.exit_code)
        yield Difference(Kind.EXIT, "exit code", one, other, cause)


def _is_same(one: Any, other: Any, tolerance: float) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(_is_same(a, b, tolerance) for a, b in pairs)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            _is_same(value, other[name], tolerance) for name, value in one.items()
        )
    return one == other or _distance(one, other) <= tolerance


def _distance(one: Any, other: Any) -> float:
    """Return the relative difference of two recorded floats; infinite for anything else."""
    a, b = _float(one), _float(other)
    if one == other:
        return 0.0
    if a is None or b is None or a != a or b != b:
        return float("inf")
    return abs(a - b) / max(abs(a), abs(b), 1e-12)


def _float(value: Any) -> float | None:
    if not isinstance(value, str):
        return None
    try:
        return float.fromhex(value)
    except ValueError:
        return None


def _shown(value: Any) -> str:
    """Return a recorded value for people, in at most some 60 characters."""
    number = (
        _float(value) if isinstance(value, str) and value.lstrip("-").startswith("0x") else None
    )
    if number is not None:
        return f"{number:.9g}"
    if isinstance(value, list):
        shown = ", ".join(_shown(item) for item in value[:3])
        return f"{len(value)} values" + (f" ({shown}, ...)" if len(value) > 3 else f" ({shown})")
    return "missing" if value is None else str(value)[:60]
