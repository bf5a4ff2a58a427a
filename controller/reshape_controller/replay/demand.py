"""What the jobs of a trace or a workload ask for: sizes, hours, and GPUs over time.

Does: sum up jobs. It reads no file and draws nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A job on the GPU count that it had, or on its largest. ``seconds`` is None if its length is
    no number of steps."""

    submit_s: float
    gpus: int
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the time: its begin, and the mean of the GPUs that jobs ask for in it."""

    begin_s: float
    gpus: float


@dataclass(frozen=True, slots=True)
class Demand:
    """Sums over jobs. ``hours`` are those of the jobs, of which the length is known."""

    jobs: int
    jobs_by_gpus: dict[int, int]
    gpu_hours: float
    median_hours: float
    longest_hours: float
    without_length: int
    first_submit_s: float
    last_submit_s: float
    parts: tuple[Part, ...]


def demand_of(jobs: Sequence[Asked], parts: int) -> Demand:
    """Return what jobs ask for, over so many equal parts of the time from the first submission to
    the last end, if each began when it was submitted."""
    seconds = [job.seconds for job in jobs if job.seconds is not None]
    sizes = sorted({job.gpus for job in jobs})
    times = [job.submit_s for job in jobs]
    return Demand(
        jobs=len(jobs),
        jobs_by_gpus={size: sum(job.gpus == size for job in jobs) for size in sizes},
        gpu_hours=sum(job.gpus * (job.seconds or 0.0) for job in jobs) / HOUR_S,
        median_hours=median(seconds) / HOUR_S if seconds else 0.0,
        longest_hours=max(seconds, default=0.0) / HOUR_S,
        without_length=len(jobs) - len(seconds),
        first_submit_s=min(times),
        last_submit_s=max(times),
        parts=_course(jobs, parts),
    )


def _course(jobs: Sequence[Asked], parts: int) -> tuple[Part, ...]:
    """Return the mean of the GPUs in each part. The sum over the parts is that of the jobs."""
    begin_s = min(job.submit_s for job in jobs)
    end_s = max(job.submit_s + (job.seconds or 0.0) for job in jobs)
    width_s = (end_s - begin_s) / parts
    if width_s <= 0.0:
        return ()
    gpu_s = [0.0] * (parts + 1)
    whole = [0.0] * (parts + 2)  # changes of the GPUs of parts that a job fills
    for job in jobs:
        start = (job.submit_s - begin_s) / width_s
        end = start + (job.seconds or 0.0) / width_s
        first, last = min(int(start), parts), min(int(end), parts)
        if first == last:
            gpu_s[first] += job.gpus * (end - start)
            continue
        gpu_s[first] += job.gpus * (first + 1 - start)
        gpu_s[last] += job.gpus * (end - last)
        whole[first + 1] += job.gpus
        whole[last] -= job.gpus
    found = [own + filled for own, filled in zip(gpu_s, accumulate(whole), strict=False)]
    found[parts - 1] += found[parts]  # what ends exactly at the end
    return tuple(Part(begin_s + n * width_s, found[n]) for n in range(parts))
