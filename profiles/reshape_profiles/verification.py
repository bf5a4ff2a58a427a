"""Verification: does a job's training come out the same although it is stopped and resumed?

Does: trains a number of steps without stops, and again with two stops, on chosen numbers of
devices, and compares. If they differ, a second run without stops tells a script that does not
repeat itself from one that a stop changes.
"""

from __future__ import annotations

import importlib.metadata
import platform
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reshape_profiles.comparison import (
    WEIGHTS_FLOOR,
    Difference,
    Kind,
    Tolerance,
    differences,
)
from reshape_profiles.recorded_run import Leg, Recorded, run
from reshape_profiles.schema import Verification
from reshape_profiles.training_run import RunFailed, Script
from reshape_sidecar.wire import Trajectory

LEGS = 3
"""Processes of the stopped run: two stops."""
STEPS_MIN = 2 * LEGS
PACKAGES = ("tensorflow", "tensorflow-cpu", "keras", "torch", "numpy")

Say = Callable[[str, int], None]
"""Called with the name of a run and its newest step."""


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of a verification."""

    verification: Verification
    expected: str | None
    """Verdict of the hook; None if it gave none."""
    expected_reason: str | None
    stops: tuple[int, ...]
    differences: tuple[Difference, ...]
    """Differences that a stop makes, the earliest first."""


def verify(
    script: Script,
    devices: Sequence[str],
    sizes: Sequence[int],
    steps: int,
    date: str,
    say: Say = lambda name, step: None,
) -> Verified:
    """Train ``steps`` without stops on ``sizes[0]`` devices, and stopped on each of three sizes.

    ``date``: today, as 2026-11-25. Raises RunFailed.
    """
    if steps < STEPS_MIN:
        raise RunFailed(f"{steps} steps are too few for two stops", f"--steps {STEPS_MIN} or more")
    if len(sizes) != LEGS or not all(1 <= size <= len(devices) for size in sizes):
        raise RunFailed(
            f"the sizes {', '.join(map(str, sizes))} are not {LEGS} numbers of GPUs from 1 to "
            f"{len(devices)}",
            "for example --sizes 1,1,1",
        )
    bounded = replace(script, length_steps=steps)
    with tempfile.TemporaryDirectory(prefix="reshape-verify-") as name:
        runs = _Runs(bounded, devices, Path(name), say)
        straight = runs.straight("without stops", sizes[0])
        end = max(step for step, _ in straight.steps)
        stops = (max(1, end // LEGS), max(2, 2 * end // LEGS))
        if stops[1] >= end:
            raise RunFailed(
                f"the script trained only {end} steps",
                f"have it train at least {STEPS_MIN} steps",
            )
        tolerance = runs.tolerance(straight, sizes)
        legs = [Leg(tuple(devices[:size]), stop) for size, stop in zip(sizes, stops, strict=False)]
        stopped = runs.recorded("with two stops", [*legs, Leg(tuple(devices[: sizes[-1]]))])
        found = differences(straight, stopped, tolerance)
        noise: tuple[Difference, ...] = ()
        if not found:
            _check_stops(stopped.stops, end)
        else:
            noise = differences(straight, runs.straight("without stops, again", sizes[0]))
    verdict, reason, made = _judged(straight, found, noise, tolerance)
    verification = Verification(
        verdict=verdict,
        reason=reason,
        steps=end,
        sizes=tuple(sizes),
        date=date,
        versions=versions(),
    )
    return Verified(verification, stopped.verdict, stopped.reason, stopped.stops, made)


class _Runs:
    """The runs of a verification, each in a folder of its own."""

    def __init__(self, script: Script, devices: Sequence[str], folder: Path, say: Say) -> None:
        self._script, self._devices, self._folder, self._say = script, devices, folder, say
        self._count = 0

    def straight(self, name: str, size: int, first: int | None = None) -> Recorded:
        """Return a run without stops; ``first``: with the batches of so many devices."""
        return self.recorded(name, [Leg(tuple(self._devices[:size]), first_devices=first)])

    def recorded(self, name: str, legs: Sequence[Leg]) -> Recorded:
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        return run(self._script, legs, folder, lambda step: self._say(name, step))

    def tolerance(self, straight: Recorded, sizes: Sequence[int]) -> Tolerance | None:
        """Return how far a run on other numbers of devices may differ; None on the same number."""
        others = sorted(set(sizes) - {sizes[0]})
        if not others:
            return None
        runs = [self.straight(f"without stops on {size}", size, sizes[0]) for size in others]
        return Tolerance.of(straight, runs)


def _check_stops(stops: tuple[int, ...], end: int) -> None:
    """Raise RunFailed unless both stops came before the last step: equal runs prove nothing then.

    A script that makes many steps at a time (``steps_per_execution``) stops only between them.
    """
    before = [stop for stop in stops if stop < end]
    if len(before) < LEGS - 1:
        raise RunFailed(
            f"only {len(before)} of {LEGS - 1} stops came before the last step {end}, because the "
            "script makes many steps at a time; give more --steps"
        )


def _judged(
    straight: Recorded,
    found: tuple[Difference, ...],
    noise: tuple[Difference, ...],
    tolerance: Tolerance | None,
) -> tuple[Trajectory, str, tuple[Difference, ...]]:
    """Return the verdict, its reason, and the differences that a stop made.

    ``noise``: differences of two runs without stops.
    """
    if straight.exit_code != 0:
        reason = f"the script fails without a stop (exit code {straight.exit_code})"
        return Trajectory.UNKNOWN, reason, ()
    if any(one.kind in (Kind.STEPS, Kind.VALUE) for one in noise):
        reason = f"two runs without a stop differ ({noise[0].subject}); set the script's seeds"
        return Trajectory.UNKNOWN, reason, ()
    by_itself = {difference.subject for difference in noise}
    made = tuple(one for one in found if one.subject not in by_itself)
    if not made:
        return _equal(tolerance)
    broken = any(one.kind in (Kind.STEPS, Kind.EXIT) for one in made)
    return Trajectory.UNKNOWN if broken else Trajectory.STEPS_ONLY, made[0].text, made


def _equal(
    tolerance: Tolerance | None,
) -> tuple[Trajectory, str, tuple[Difference, ...]]:
    """Return the verdict on runs without a difference beyond the tolerance."""
    if tolerance is None:
        return Trajectory.EXACT, "equal to the last bit", ()
    weights = tolerance.of_most_weights
    if weights is not None and weights > WEIGHTS_FLOOR:
        reason = (
            f"another number of GPUs changes the weights by {weights:.1g}, also without a stop;"
            " a stop changes nothing beside that"
        )
        return Trajectory.STEPS_ONLY, reason, ()
    within = f"equal within {tolerance.worst():.1g}"
    if weights is not None:
        within += f", weights within {tolerance.worst(of_weights=True):.1g}"
    return Trajectory.EXACT, f"{within}, as other numbers of GPUs round differently", ()


def versions() -> str:
    """Return the versions of Python and the frameworks that are installed."""
    found = [f"Python {platform.python_version()}"]
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)
