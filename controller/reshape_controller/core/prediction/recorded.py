"""Seconds of a step by the recorded figures of a type, also where none was recorded.

Does: looks a figure up, or draws it from those beside it and a default curve. Never: sees what jobs
measured. State: none.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from reshape_profiles.schema import Profile

DEFAULT_SECONDS_PER_STEP = 1.0
"""One step on one GPU of a job of which nothing is known."""

_CURVE = (0.86928, 0.13072, 0.02288)


def default_curve(gpus: int) -> float:
    """Time of a step on ``gpus`` GPUs relative to one: a/n + b + c(n - 1), longer again beyond six.

    The constants give the paper's introduction: 1.7 times the speed on two GPUs, 2.4 on four.
    """
    split, fixed, exchange = _CURVE
    return split / gpus + fixed + exchange * (gpus - 1)


def same_gpu(recorded: str, found: str) -> bool:
    """Whether a profile's GPU type is that of a host: the same name, or one part of it
    (``V100`` of ``tesla-v100-sxm2-16gb``), in any case."""
    recorded, found = recorded.lower(), found.lower()
    return recorded == found or recorded in found.split("-")


@dataclass(slots=True)
class Recorded:
    """Seconds of a step of a type on GPUs of one type, as recorded; between and beyond what was,
    by the default curve."""

    known: bool
    """Whether something was recorded on these GPUs."""
    seconds: dict[int, float]
    """By number of GPUs; those that were asked for are added."""
    over_curve: list[tuple[int, float]]
    """Recorded over default, by number of GPUs, ascending."""

    def on(self, gpus: int) -> float:
        """Seconds of a step on so many GPUs."""
        found = self.seconds.get(gpus)
        if found is None:
            found = self.seconds[gpus] = default_curve(gpus) * _between(self.over_curve, gpus)
        return found


def recorded(profile: Profile | None, gpu_type: str) -> Recorded:
    """What a profile says of GPUs of a type. Without figures of these it is as slow as on the
    slowest type that has some."""
    if profile is None or not profile.speed:
        return Recorded(known=False, seconds={}, over_curve=[(1, DEFAULT_SECONDS_PER_STEP)])
    points = [point for point in profile.speed if same_gpu(point.gpu_type, gpu_type)]
    known = bool(points)
    if not known:
        _, slowest = max(
            (p.seconds_per_step / default_curve(p.gpus), p.gpu_type) for p in profile.speed
        )
        points = [point for point in profile.speed if point.gpu_type == slowest]
    seconds = {point.gpus: point.seconds_per_step for point in points}
    over_curve = sorted((size, step_s / default_curve(size)) for size, step_s in seconds.items())
    return Recorded(known, seconds, over_curve)


def _between(points: list[tuple[int, float]], x: int) -> float:
    """Straight lines through ``points`` (ascending), level beyond the first and the last."""
    if x <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in pairwise(points):
        if x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return points[-1][1]
