"""Verification: does a job's training come out the same although it is stopped and resumed?

Does: trains a number of steps without stops, and again with two stops on the same devices, and
compares. If they differ, a second run without stops tells a script that does not repeat itself
from one that a stop changes. If they do not, and other numbers of devices were chosen, it does the
same on these: what a stop changes by itself does not hide behind what the numbers change.
"""

from __future__ import annotations

import contextlib
import inspect
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reshape_profiles.comparison import (
    DEVIATION_FACTOR,
    WEIGHTS_FLOOR,
    Difference,
    Kind,
    Tolerance,
    differences,
)
from reshape_profiles.recorded_run import Leg, Recorded, run
from reshape_profiles.schema import Verification
from reshape_profiles.training_run import RunFailed, Script, python_of
from reshape_sidecar.hook.exactness import HALF_PRECISION
from reshape_sidecar.wire import Proof, Trajectory

LEGS = 3
"""Processes of the stopped run: two stops."""
STEPS_MIN = 2 * LEGS
PACKAGES = (
    *("tensorflow", "tensorflow-cpu", "keras", "torch", "transformers", "accelerate"),
    *("lightning", "pytorch-lightning", "numpy"),
)
VERSIONS_S = 60.0
"""Longest wait for the versions of the script's Python."""
LOSSES_FLOOR = 1e-2
"""Relative difference of losses between numbers of devices that may be rounding."""

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
    proofs: tuple[Proof, ...] = ()
    """What the first step after each stop has shown: a step beside that of the process before."""


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
        runs = _Runs(bounded, devices, Path(name), sizes[0], say)
        straight = runs.straight()
        end = max(step for step, _ in straight.steps)
        stops = (max(1, end // LEGS), max(2, 2 * end // LEGS))
        if stops[1] >= end:
            raise RunFailed(
                f"the script trained only {end} steps",
                f"have it train at least {STEPS_MIN} steps",
            )
        one = (sizes[0],) * LEGS
        is_alone = tuple(sizes) == one
        stopped = runs.stopped("with two stops", one, stops)
        judged = runs.judged(straight, stopped, None, may_round=not is_alone)
        if not judged.differences and judged.verdict is Trajectory.EXACT:
            _check_stops(stopped.stops, end)
            if not is_alone:
                tolerance = runs.tolerance(straight, sizes)
                stopped = runs.stopped("with two stops on other sizes", sizes, stops)
                judged = runs.judged(straight, stopped, tolerance, may_round=True)
                if judged.verdict is Trajectory.EXACT:
                    judged = _equal(tolerance, stopped.reason)
        elif judged.differences and not is_alone:
            judged = replace(judged, reason=f"on {sizes[0]} of the GPUs alone, {judged.reason}")
    verification = Verification(
        verdict=judged.verdict,
        reason=judged.reason,
        steps=end,
        sizes=tuple(sizes),
        date=date,
        versions=versions(python_of(script)),
    )
    return Verified(
        verification,
        stopped.verdict,
        stopped.reason,
        stopped.stops,
        judged.differences,
        stopped.proofs,
    )


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a comparison says."""

    verdict: Trajectory
    reason: str
    differences: tuple[Difference, ...] = ()
    """Those that a stop makes."""


class _Runs:
    """The runs of a verification, each in a folder of its own."""

    def __init__(
        self, script: Script, devices: Sequence[str], folder: Path, size: int, say: Say
    ) -> None:
        """``size``: devices of the runs without stops."""
        self._script, self._devices, self._folder, self._say = script, devices, folder, say
        self._size, self._count = size, 0

    def straight(self, name: str = "without stops", size: int | None = None) -> Recorded:
        """Return a run without stops; on another ``size`` with the batches of the usual one."""
        first = None if size is None else self._size
        devices = tuple(self._devices[: size or self._size])
        return self._recorded(name, [Leg(devices, first_devices=first)])

    def stopped(self, name: str, sizes: Sequence[int], stops: Sequence[int]) -> Recorded:
        """Return a run on ``sizes``, one after the other, with a stop after each of ``stops``."""
        devices = [tuple(self._devices[:size]) for size in sizes]
        legs = [Leg(some, stop) for some, stop in zip(devices, (*stops, None), strict=True)]
        return self._recorded(name, legs)

    def tolerance(self, straight: Recorded, sizes: Sequence[int]) -> Tolerance:
        """Return how far a run on other numbers of devices may differ."""
        others = sorted(set(sizes) - {self._size})
        runs = [self.straight(f"without stops on {size}", size) for size in others]
        return Tolerance.of(straight, runs)

    def judged(
        self, straight: Recorded, stopped: Recorded, tolerance: Tolerance | None, *, may_round: bool
    ) -> Judgement:
        """Compare a run with stops with one without; on the same devices without a ``tolerance``.

        may_round: whether two runs without stops may differ by rounding, as some GPU kernels do.
        """
        if straight.exit_code != 0:
            reason = f"the script fails without a stop (exit code {straight.exit_code})"
            return Judgement(Trajectory.UNKNOWN, reason)
        found = differences(straight, stopped, tolerance)
        if not found:
            return Judgement(Trajectory.EXACT, "equal to the last bit")
        again = self.straight("without stops, again")
        noise = differences(straight, again, Tolerance() if may_round else None)
        if any(one.kind in (Kind.STEPS, Kind.VALUE) for one in noise):
            reason = f"two runs without a stop differ ({noise[0].subject}); set the script's seeds"
            return Judgement(Trajectory.UNKNOWN, reason)
        if may_round and tolerance is None:
            found = differences(straight, stopped, Tolerance.of(straight, [again]))
        by_itself = {difference.subject for difference in noise}
        made = tuple(one for one in found if one.subject not in by_itself)
        if not made:
            return Judgement(Trajectory.EXACT, "equal but for what differs without a stop too")
        broken = any(one.kind in (Kind.STEPS, Kind.EXIT) for one in made)
        verdict = Trajectory.UNKNOWN if broken else Trajectory.STEPS_ONLY
        return Judgement(verdict, made[0].text, made)

    def _recorded(self, name: str, legs: Sequence[Leg]) -> Recorded:
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        return run(self._script, legs, folder, lambda step: self._say(name, step))


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


def _equal(tolerance: Tolerance, expected: str | None) -> Judgement:
    """Return the judgement of runs on other numbers of devices that are equal but for that.

    expected: what the hook says beside its verdict, such as a rounding.
    """
    types = [name for name in HALF_PRECISION if name in (expected or "")]
    rounding = max((HALF_PRECISION[name] for name in types), default=0.0)
    weights, others = tolerance.of_most_weights, tolerance.worst() / DEVIATION_FACTOR
    for what, off, floor in (
        ("weights", weights or 0.0, max(WEIGHTS_FLOOR, rounding)),
        ("losses", others, max(LOSSES_FLOOR, rounding)),
    ):
        if off > floor:
            remedy = "" if "micro-batches" in (expected or "") else ", without `batch: micro`"
            reason = (
                f"another number of GPUs changes the {what} by {off:.1g}, also without a stop, as"
                f" a loss over the samples of one GPU does{remedy}; a stop on the same GPUs changes"
                " nothing"
            )
            return Judgement(Trajectory.STEPS_ONLY, reason)
    within = f"equal within {tolerance.worst():.1g}"
    if weights is not None:
        within += f", weights within {tolerance.worst(of_weights=True):.1g}"
    within += ", as other numbers of GPUs round differently"
    in_half = f" in {' and '.join(types)} ({rounding:.1%})" if types else ""
    return Judgement(Trajectory.EXACT, within + in_half)


def versions(interpreter: str | None = None) -> str:
    """Return the versions of Python and the frameworks that are installed.

    interpreter: that of the script; None: this one.
    """
    if interpreter is not None and interpreter != sys.executable:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            source = inspect.getsource(_versions) + "print(_versions())"
            done = subprocess.run(
                [interpreter, "-c", f"PACKAGES = {PACKAGES!r}\n{source}"],
                capture_output=True,
                text=True,
                timeout=VERSIONS_S,
                check=True,
            )
            return done.stdout.strip()
    return _versions()


def _versions() -> str:
    import importlib.metadata
    import platform

    found = [f"Python {platform.python_version()}"]
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)
