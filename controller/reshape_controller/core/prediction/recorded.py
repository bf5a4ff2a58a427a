"""Seconds of a step by the recorded figures of a type, also where none was recorded.

Does: looks a figure up, or draws it from those beside it and a default curve. Never: sees what jobs
measured. State: none.
"""

from __future__ import annotations

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


def recorded_s(profile: Profile | None, gpu_type: str, gpus: int) -> float:
    """Seconds of a step by the recorded figures; between and beyond them by the default curve.

    On a GPU type without figures: as slow as on the slowest type that has some.
    """
    if profile is None or not profile.speed:
        return DEFAULT_SECONDS_PER_STEP * default_curve(gpus)
    points = {p.gpus: p.seconds_per_step for p in profile.speed if same_gpu(p.gpu_type, gpu_type)}
    if not points:
        slowest = max(
            profile.speed, key=lambda p: (p.seconds_per_step / default_curve(p.gpus), p.gpu_type)
        )
        points = {
            p.gpus: p.seconds_per_step for p in profile.speed if p.gpu_type == slowest.gpu_type
        }
    if gpus in points:
        return points[gpus]
    return default_curve(gpus) * _between(
        sorted((size, seconds / default_curve(size)) for size, seconds in points.items()), gpus
    )


def _between(points: list[tuple[int, float]], x: int) -> float:
    """Straight lines through ``points`` (ascending), level beyond the first and the last."""
    if x <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in pairwise(points):
        if x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return points[-1][1]
