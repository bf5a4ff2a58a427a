"""The recorded seconds of a step of a job type, at every number of GPUs and hosts.

Does: takes recorded sizes as they are, and puts others on the default curve through them. Of GPUs
without a recorded speed it takes the slowest recorded GPU type.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from reshape_profiles.schema import Profile

DEFAULT_SECONDS_PER_STEP = 1.0
"""One step on one GPU of a job without any recorded or measured speed."""
_CURVE = (0.86928, 0.13072, 0.02288)


def default_curve(gpus: int) -> float:
    """Return the time of a step on ``gpus`` GPUs relative to one GPU: a/n + b + c(n - 1).

    The constants give the figures in the paper's introduction, 1.7 times the speed on two GPUs and
    2.4 on four. Beyond six GPUs a step takes longer again.
    """
    split, fixed, exchange = _CURVE
    return split / gpus + fixed + exchange * (gpus - 1)


def curve_on(gpus: int, hosts: int) -> float:
    """Return the same for GPUs of several hosts: each further host is assumed to take half as long
    as each further GPU, a/n + b + c(n - 1) + (c/2)(h - 1)."""
    return default_curve(gpus) + _CURVE[2] / 2 * (hosts - 1)


def same_gpu(recorded: str, actual: str) -> bool:
    """Whether a profile's GPU type is a host's: the same name, or one part of the host's
    (``V100`` of ``tesla-v100-sxm2-16gb``), in upper or lower case."""
    recorded, actual = recorded.lower(), actual.lower()
    return recorded == actual or recorded in actual.split("-")


@dataclass(slots=True)
class RecordedSpeeds:
    """Seconds of a step of one job type on one GPU type, from its profile. Sizes between and beyond
    the recorded sizes follow the default curve."""

    known: bool
    """True if the profile has a speed on these GPUs."""
    seconds: dict[int, float]
    """Seconds of a step by number of GPUs: recorded, or cached by ``on``."""
    over_curve: list[tuple[int, float]]
    """Recorded seconds over the default curve's, by number of GPUs, ascending."""
    spanning: dict[tuple[int, int], float] = field(default_factory=dict)
    """Seconds of a step by number of GPUs and of several hosts: recorded, or cached by ``on``."""
    host_s: float | None = None
    """What each further host adds to a step, from the sizes that are recorded on one host and on
    several; None: there is none, so that it is assumed."""

    def on(self, gpus: int, hosts: int = 1) -> float:
        """Return the seconds of a step on ``gpus`` GPUs of ``hosts`` hosts."""
        if hosts > 1:
            return self._on_several(gpus, hosts)
        step_s = self.seconds.get(gpus)
        if step_s is None:
            step_s = default_curve(gpus) * _interpolate(self.over_curve, gpus)
            self.seconds[gpus] = step_s
        return step_s

    def _on_several(self, gpus: int, hosts: int) -> float:
        step_s = self.spanning.get((gpus, hosts))
        if step_s is None:
            if self.host_s is None:
                step_s = curve_on(gpus, hosts) * _interpolate(self.over_curve, gpus)
            else:
                step_s = self.on(gpus) + self.host_s * (hosts - 1)
            self.spanning[gpus, hosts] = step_s
        return step_s


def speeds_of_profile(profile: Profile | None, gpu_type: str) -> RecordedSpeeds:
    """Return a profile's speeds on GPUs of a type. If it has none on these, return its speeds on
    the slowest recorded GPU type."""
    if profile is None or not profile.speed:
        return RecordedSpeeds(known=False, seconds={}, over_curve=[(1, DEFAULT_SECONDS_PER_STEP)])
    points = [point for point in profile.speed if same_gpu(point.gpu_type, gpu_type)]
    known = bool(points)
    if not known:
        _, slowest = max(
            (p.seconds_per_step / curve_on(p.gpus, p.hosts), p.gpu_type) for p in profile.speed
        )
        points = [point for point in profile.speed if point.gpu_type == slowest]
    seconds = {point.gpus: point.seconds_per_step for point in points if point.hosts == 1}
    spanning = {(p.gpus, p.hosts): p.seconds_per_step for p in points if p.hosts > 1}
    over_curve = sorted((size, step_s / default_curve(size)) for size, step_s in seconds.items())
    if not over_curve:
        fewest = dict(sorted(spanning, reverse=True))
        over_curve = sorted(
            (size, spanning[size, hosts] / curve_on(size, hosts)) for size, hosts in fewest.items()
        )
    return RecordedSpeeds(known, seconds, over_curve, spanning, _host_s(seconds, spanning))


def _host_s(seconds: dict[int, float], spanning: dict[tuple[int, int], float]) -> float | None:
    """Return the mean of what a further host adds at the sizes that are recorded on one host and
    on several, at least 0; None without such a size."""
    found = [
        (step_s - seconds[size]) / (hosts - 1)
        for (size, hosts), step_s in spanning.items()
        if size in seconds
    ]
    return max(0.0, sum(found) / len(found)) if found else None


def _interpolate(points: list[tuple[int, float]], x: int) -> float:
    """Return the value at ``x`` on straight lines through ``points`` (ascending); beyond the first
    and the last point the value stays the same."""
    if x <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in pairwise(points):
        if x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return points[-1][1]
