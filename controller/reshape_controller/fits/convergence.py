"""An accuracy curve through points: 1 - accuracy = 1 / (b0 * step + b1) + b2 (Optimus's form).

Does: fit the points of a profile and of a running job by non-negative least squares, and make the
events by which the coefficients enter the log. With b2 fixed, the inverted form is linear in b0 and
b1, so b2 is searched and the others are solved for. Too few points, an accuracy that does not rise
and values that are no numbers are refused with a reason. State: the points of each job that were
fitted already.

The coefficients are rounded, so that a log replays without this module and with any linear-algebra
build. A refused fit of a job is named once. The first fit imports numpy; a daemon without such jobs
starts without it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from reshape_controller.core.errors import ReshapeError
from reshape_controller.core.events import CurveFitted
from reshape_controller.core.knowledge import Curve
from reshape_controller.core.model import Job, JobId, LengthUnit
from reshape_controller.core.state import State
from reshape_profiles.schema import DEFAULT_TYPE, Profile

if TYPE_CHECKING:
    import numpy as np

POINTS_MIN = 5
"""Least number of points of a curve; a job with fewer uses the curve of its type."""
PROFILE_WEIGHT = 0.25
"""Weight of a profile's point relative to a point of the running job."""
ERROR_MAX = 0.05
"""Largest root mean square error in accuracy of a usable curve."""
ACCURACY_MAX = 0.999
"""A job's point above this counts as this, because no curve of this form reaches 1."""
GRID = 40
"""Number of values of b2 in each round of the search."""
ROUNDS = 3
DIGITS = 9

Point = tuple[float, float]
"""Step and accuracy."""


class FitRefused(ReshapeError):
    """The points give no usable curve; the text says why."""


def fit(points: Sequence[Point], weights: Sequence[float] | None = None) -> Curve:
    """Return the curve through ``points``. Raises FitRefused."""
    import numpy as np

    weights = [1.0] * len(points) if weights is None else list(weights)
    _refuse_nonsense(points)
    steps = np.array([step for step, _ in points], dtype=float)
    gaps = np.array([1.0 - accuracy for _, accuracy in points], dtype=float)
    weight = np.sqrt(np.array(weights, dtype=float))
    scale = float(steps.max())
    low, high = 0.0, float(gaps.min()) * (1.0 - 1e-6)
    error, b0, b1, b2 = math.inf, 0.0, 0.0, 0.0
    for _ in range(ROUNDS):
        tried = np.linspace(low, high, GRID)
        found = solve(steps / scale, gaps, weight, tried)
        errors = _errors(steps / scale, gaps, weight, found, tried)
        best = int(np.argmin(errors))
        if errors[best] < error:
            error, b2 = float(errors[best]), float(tried[best])
            b0, b1 = (float(value) for value in found[best])
        width = (high - low) / (GRID - 1)
        low, high = max(0.0, b2 - width), min(high, b2 + width)
    if not math.isfinite(error) or error > ERROR_MAX:
        raise FitRefused(f"no learning curve fits: the mean error in accuracy is {error:.3f}")
    if b0 <= 0.0:
        raise FitRefused("the accuracy does not rise with the steps")
    return Curve(_rounded(b0 / scale), _rounded(b1), _rounded(b2), len(points))


class Refits:
    """Repeats fits when points are added. The live loop and the replay call it after each batch."""

    def __init__(self) -> None:
        self._tried: dict[JobId, int] = {}
        self._types: dict[str, Profile] = {}
        self._named: set[JobId] = set()
        self._refused: list[tuple[JobId, str]] = []

    def refusals(self) -> list[tuple[JobId, str]]:
        """Return jobs whose fit was refused, each once, with the reason; forget the reasons."""
        refused, self._refused = self._refused, []
        return refused

    def due(self, state: State) -> tuple[CurveFitted, ...]:
        """Return events for new curves; a refused fit gives none."""
        found: list[CurveFitted] = []
        for job in [job for job in state.jobs.values() if _has_target(job)]:
            kind = job.spec.job_type or DEFAULT_TYPE
            profile = state.profiles.of(kind)
            if profile is not None and self._types.get(kind) is not profile:
                self._types[kind] = profile
                points = [(float(p.step), p.accuracy) for p in profile.accuracy]
                found += _fitted(None, kind, points, [1.0] * len(points))[0]
            if job.accuracies and self._tried.get(job.id) != job.accuracies[-1].step:
                self._tried[job.id] = job.accuracies[-1].step
                events, refused = _refit(state, job)
                found += events
                if refused and job.id not in self._named:
                    self._named.add(job.id)
                    self._refused.append((job.id, refused))
        for job_id in [job_id for job_id in self._tried if job_id not in state.jobs]:
            del self._tried[job_id]
            self._named.discard(job_id)
        return tuple(found)


def _refit(state: State, job: Job) -> tuple[list[CurveFitted], str]:
    """Return the event of a job's new curve, or else why no curve fits."""
    own = [(float(point.step), min(point.accuracy, ACCURACY_MAX)) for point in job.accuracies]
    if len(own) < POINTS_MIN:
        return [], ""
    profile = state.profiles.of(job.spec.job_type)
    recorded = [(float(p.step), p.accuracy) for p in profile.accuracy] if profile else []
    weights = [1.0] * len(own) + [PROFILE_WEIGHT] * len(recorded)
    kind = job.spec.job_type or DEFAULT_TYPE
    events, _ = _fitted(job.id, kind, own + recorded, weights)
    return (events, "") if events else _fitted(job.id, kind, own, [1.0] * len(own))


def _fitted(
    job: JobId | None, job_type: str, points: list[Point], weights: list[float]
) -> tuple[list[CurveFitted], str]:
    try:
        return [CurveFitted(job, job_type, fit(points, weights))], ""
    except FitRefused as refused:
        return [], str(refused)
    except Exception as error:  # figures that jobs report must not end the loop
        return [], f"the fit failed: {error!r}"


def _has_target(job: Job) -> bool:
    length = job.spec.length
    return length is not None and length.unit is LengthUnit.TARGET_ACCURACY


def _refuse_nonsense(points: Sequence[Point]) -> None:
    if len(points) < POINTS_MIN:
        raise FitRefused(f"{len(points)} accuracy points are too few; a curve needs {POINTS_MIN}")
    for step, accuracy in points:
        if not (math.isfinite(step) and math.isfinite(accuracy)):
            raise FitRefused(f"step {step} with accuracy {accuracy} is not a valid point")
        if step < 0 or not 0.0 <= accuracy < 1.0:
            raise FitRefused(f"accuracy {accuracy} at step {step} lies outside 0 to 1")
    ordered = [accuracy for _, accuracy in sorted(points)]
    third = max(1, len(ordered) // 3)
    if sum(ordered[-third:]) / third <= sum(ordered[:third]) / third:
        raise FitRefused("the accuracy does not rise, so no curve can be fitted")
    if len({step for step, _ in points}) < POINTS_MIN:
        raise FitRefused("too few accuracy points at different steps")


def solve(steps: np.ndarray, gaps: np.ndarray, weight: np.ndarray, b2: np.ndarray) -> np.ndarray:
    """Return non-negative b0 and b1 for each of ``b2``, by least squares in closed form.

    A row's weight converts its error to an error in accuracy. If the best b0 or b1 is negative, the
    result is the best with one of them zero.
    """
    import numpy as np

    rest = gaps[None, :] - b2[:, None]
    second = weight * rest**2
    first, goal = steps * second, weight * rest
    a, b, c = (
        np.sum(x * y, axis=1) for x, y in ((first, first), (first, second), (second, second))
    )
    u, v = np.sum(first * goal, axis=1), np.sum(second * goal, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        both = np.stack([u * c - v * b, v * a - u * b], axis=1) / (a * c - b * b)[:, None]
        only_first = np.stack([u / a, 0 * u], axis=1)
        only_second = np.stack([0 * v, v / c], axis=1)
    # With one unknown alone, the sum of squares falls by u*u/a or v*v/c.
    with np.errstate(divide="ignore", invalid="ignore"):
        one = np.where((u * u / a >= v * v / c)[:, None], only_first, only_second)
    inside = np.all(np.isfinite(both) & (both >= 0.0), axis=1)
    solved: np.ndarray = np.where(inside[:, None], both, one)
    return solved


def _errors(
    steps: np.ndarray, gaps: np.ndarray, weight: np.ndarray, found: np.ndarray, b2: np.ndarray
) -> np.ndarray:
    """Return the weighted root mean square error in accuracy of each solution."""
    import numpy as np

    below = found[:, :1] * steps + found[:, 1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        difference = (1.0 / below + b2[:, None] - gaps) * weight
        errors = np.sqrt(np.sum(difference**2, axis=1) / np.sum(weight**2))
    known = np.all(below > 0.0, axis=1) & np.isfinite(errors)
    kept: np.ndarray = np.where(known, errors, np.inf)
    return kept


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
