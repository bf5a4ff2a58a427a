"""The comparison of two recorded runs of a script: one without stops, one with them. Pure.

Does: lists every difference in the order in which it arose, and names its likely cause. Runs on the
same devices must agree to the last bit. Runs on other numbers of devices round differently, so each
number has a tolerance of its own: what runs without stops differ by in that number.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from reshape_profiles.recorded_run import Recorded
from reshape_sidecar.wire import Trajectory

DEVIATION_FLOOR = 1e-5
"""Relative difference of a loss or metric by rounding that is always allowed between other numbers
of devices."""
WEIGHTS_FLOOR = 1e-4
"""Likewise of a tensor of weights."""
DEVIATION_FACTOR = 2.0
"""A stopped run may differ by so many times the difference of runs without stops."""


WEIGHT = "weight "
"""What the name of a tensor of weights begins with."""


class Kind(StrEnum):
    """Kind of a difference."""

    STEPS = "steps"
    """A step was not trained exactly once."""
    VALUE = "value"
    """A step has another loss or metric, or leaves other weights."""
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


@dataclass(slots=True)
class Tolerance:
    """How far each number may be from that of the run without stops, relative to itself."""

    _known: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    """By name: steps in their order, and the largest deviation up to each of them."""

    @classmethod
    def of(cls, straight: Recorded, others: Iterable[Recorded]) -> Tolerance:
        """Return what runs on ``others``' numbers of devices teach, without stops all of them."""
        found = cls()
        for other in others:
            for name, step, distance in _deviations(straight, other):
                found._add(name, step, distance)
        for known in found._known.values():
            known.sort()
            worst = 0.0
            for index, (step, distance) in enumerate(known):
                worst = max(worst, distance)
                known[index] = (step, worst)
        return found

    def _add(self, name: str, step: int, distance: float) -> None:
        self._known.setdefault(name, []).append((step, distance))

    def at(self, step: int, name: str) -> float:
        """Return the tolerance of a number after ``step``."""
        floor = WEIGHTS_FLOOR if name.startswith(WEIGHT) else DEVIATION_FLOOR
        known = self._known.get(name, [])
        before = bisect.bisect_right(known, step, key=lambda entry: entry[0])
        return max(floor, DEVIATION_FACTOR * known[before - 1][1]) if before else floor

    def worst(self, *, of_weights: bool = False) -> float:
        """Return the largest tolerance of a tensor of weights, or else of another number."""
        found = [
            self.at(steps[-1][0], name)
            for name, steps in self._known.items()
            if name.startswith(WEIGHT) == of_weights
        ]
        return max(found, default=DEVIATION_FLOOR)

    @property
    def of_most_weights(self) -> float | None:
        """The deviation that half of the tensors of weights reach; None without weights.

        A few may hold rounding alone: gradients that cancel out, scaled up by the optimizer.
        """
        found = [known[-1][1] for name, known in self._known.items() if name.startswith(WEIGHT)]
        return statistics.median(found) if found else None


def differences(
    straight: Recorded, stopped: Recorded, tolerance: Tolerance | None = None
) -> tuple[Difference, ...]:
    """Return all differences, the earliest first; of the values of steps only the earliest step,
    for all later ones follow from it. ``tolerance``: of numbers; None: they must be equal."""
    return (
        *_of_steps(straight, stopped, tolerance),
        *_of_ends(straight, stopped, tolerance),
        *_of_files(straight, stopped, tolerance),
        *_of_exit(straight, stopped),
    )


def _deviations(one: Recorded, other: Recorded) -> Iterator[tuple[str, int, float]]:
    """Yield the relative difference of each number of each step, with its name and step."""
    others = dict(other.steps)
    for step, values in one.steps:
        for name, value in values.items():
            yield name, step, _distance(value, others.get(step, {}).get(name))
        for name, tensor in one.weights.get(step, {}).items():
            found = other.weights.get(step, {}).get(name)
            yield WEIGHT + name, step, _distance_of_tensors(tensor, found)


def _of_steps(
    straight: Recorded, stopped: Recorded, tolerance: Tolerance | None
) -> Iterator[Difference]:
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
        if first is not None:
            continue
        for difference in _of_step(straight, stopped, step, values, found, tolerance):
            first = step
            yield difference
    for step in sorted(set(trained) - set(expected)):
        cause = "the resumed process trained on after the end"
        yield Difference(Kind.STEPS, f"step {step}", "missing", "trained", cause)


def _of_step(
    straight: Recorded,
    stopped: Recorded,
    step: int,
    values: dict[str, Any],
    found: dict[str, Any],
    tolerance: Tolerance | None,
) -> Iterator[Difference]:
    cause = _cause_of_step(stopped, step)
    for name, value in values.items():
        allowed = 0.0 if tolerance is None else tolerance.at(step, name)
        if not _is_same(value, found.get(name), allowed):
            subject, one, other = f"step {step}: {name}", _shown(value), _shown(found.get(name))
            yield Difference(Kind.VALUE, subject, one, other, cause)
    tensors, others = straight.weights.get(step, {}), stopped.weights.get(step, {})
    off: dict[str, float] = {}
    for name in sorted({*tensors, *others}):
        tensor, its_other = tensors.get(name), others.get(name)
        distance = _distance_of_tensors(tensor, its_other)
        if tolerance is None:
            is_equal = tensor == its_other
        else:
            is_equal = distance <= tolerance.at(step, WEIGHT + name)
        if not is_equal:
            off[name] = distance
    if off:  # the farthest alone: there may be thousands
        worst = max(off, key=lambda name: off[name])
        one, other = _norm(tensors.get(worst)), _norm(others.get(worst))
        count = f"{len(off)} of {len(tensors)} tensors are off"
        said = f"{other} in norm, {off[worst]:.2g} off ({count})"
        yield Difference(Kind.VALUE, f"step {step}: {WEIGHT}{worst}", f"{one} in norm", said, cause)


def _norm(tensor: dict[str, Any] | None) -> str:
    return _shown(None if tensor is None else tensor["norm"])


def _distance_of_tensors(one: dict[str, Any] | None, other: dict[str, Any] | None) -> float:
    """Return how far the recorded numbers of a tensor are from the others, relative to them."""
    if one is None or other is None or len(one["numbers"]) != len(other["numbers"]):
        return math.inf
    if one == other:
        return 0.0
    a, b = ([float.fromhex(number) for number in t["numbers"]] for t in (one, other))
    size = max(math.hypot(*a), math.hypot(*b), 1e-12)
    apart = math.dist(a, b) / size
    return max(apart, _distance(one["norm"], other["norm"])) if apart == apart else math.inf


def _cause_of_step(stopped: Recorded, step: int) -> str:
    before = [stop for stop in stopped.stops if stop < step]
    if not before:
        return "no stop came before it: training itself does not repeat; set its seeds"
    is_exact = stopped.verdict == Trajectory.EXACT  # beside that word it is a note
    reason = f" ({stopped.reason})" if stopped.reason and not is_exact else ""
    if step == before[-1] + 1:
        return (
            f"it is the first step after the stop at step {before[-1]}: the data, its random "
            f"numbers or other state that no checkpoint holds{reason}"
        )
    return (
        f"{step - before[-1]} steps after the stop at step {before[-1]}: state that acts later, "
        f"such as a schedule, a callback or a moving average{reason}"
    )


def _of_ends(
    straight: Recorded, stopped: Recorded, tolerance: Tolerance | None
) -> Iterator[Difference]:
    found = dict(stopped.ends)
    allowed = 0.0 if tolerance is None else tolerance.worst()
    for name, value in dict(straight.ends).items():
        if tolerance is not None and isinstance(value, str) and "] " in value:
            continue  # the digest of an array says nothing about how far two arrays differ
        if not _is_same(value, found.get(name), allowed):
            if name.startswith("History"):
                cause = "the resumed process did not continue the History"
            else:
                cause = "the resumed process did not restore this object of the script"
            yield Difference(Kind.OBJECT, name, _shown(value), _shown(found.get(name)), cause)


def _of_files(
    straight: Recorded, stopped: Recorded, tolerance: Tolerance | None
) -> Iterator[Difference]:
    for name in sorted({*straight.files, *stopped.files}):
        one, other = straight.files.get(name), stopped.files.get(name)
        if one == other or (tolerance is not None and one and other):
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
