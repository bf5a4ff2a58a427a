"""What reshaping a running job could bring at best, and cost at least, from its pace alone.

Does: for each of many running jobs a bound of every size that it could get, in a few operations, so
that only those are weighed that could be worth it. Never: weighs anything, or is on the wrong side
(tests compare with every option). State: what does not change with time is kept on a job's pace.

A job with ``left`` steps that goes on with steps that are longer by ``d`` ends ``left * d`` and its
stop and start later. The most favourable of its sizes gives the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reshape_controller.core.model import Mechanism
from reshape_controller.core.plan import JobView
from reshape_controller.core.prediction.forecast import Forecast
from reshape_controller.core.prediction.predictor import Pace, Predictor

SLACK_MS = 2
"""For what is rounded."""
NO_SIZE_S = 1e9
"""Seconds by which a step is longer at a size that there is not."""

Loss = tuple[int, int, int, JobView]
"""A job that may give GPUs: what a newcomer has to save for it at least, when the job ends as it
is, what its reshape has to save on top of its costs (ms); the job."""
UNKNOWN_MS = -(10**15)
"""What a job loses of which that is not known, or that may even end sooner."""


def losses(
    forecast: Forecast, jobs: Iterable[JobView], least_ms: Callable[[int], int]
) -> list[Loss]:
    """What jobs lose at least that give GPUs. One loop on purpose: it runs for all."""
    predictor, ends_ms, now_s = forecast.predictor, forecast.ends_ms, forecast.snapshot.now_s
    found = []
    for job in jobs:
        pace, before = job.pace or predictor.pace(job), ends_ms[job.id]
        least = least_ms(before)
        slower_s = pace.slower_s
        if slower_s is None:
            slower_s = pace.slower_s = _slower_s(predictor, job, pace)
        if pace.since_s is None or slower_s < 0.0:
            found.append((UNKNOWN_MS, before, least, job))
            continue
        train_s = pace.until_s - now_s
        loss_s = train_s / pace.step_s * slower_s if train_s > 0.0 else 0.0
        loss_ms = int((loss_s + pace.stay_s) * 1000.0) - SLACK_MS
        found.append((loss_ms + least, before, least, job))
    return found


def may_grow(
    forecast: Forecast, jobs: Iterable[JobView], least_ms: Callable[[int], int]
) -> tuple[list[JobView], list[tuple[int, JobView]]]:
    """Jobs for which more GPUs could be worth it, and the others with what they lack (ms)."""
    predictor, ends_ms, now_s = forecast.predictor, forecast.ends_ms, forecast.snapshot.now_s
    hosts = forecast.snapshot.hosts
    idle = {host.id: host.idle for host in hosts}
    rooms = tuple(
        (kind, max(host.idle for host in hosts if host.gpu_type == kind)) for kind in forecast.types
    )
    in_place = forecast.snapshot.mechanism is not Mechanism.TERMINATE
    near: list[JobView] = []
    far: list[tuple[int, JobView]] = []
    for job in jobs:
        pace = job.pace or predictor.pace(job)
        if pace.since_s is None or job.host is None:
            near.append(job)
            continue
        train_s = pace.until_s - now_s
        left = train_s / pace.step_s if train_s > 0.0 else 0.0
        there_s = _faster_s(predictor, job, pace, rooms)
        leave_s = pace.stay_s + pace.cost.job_stop_s + pace.cost.job_init_s
        gain_s = left * there_s - leave_s
        if idle[job.host]:
            here = ((job.gpu_type, job.size + idle[job.host]),)
            stay_s = pace.stay_s if in_place else leave_s
            gain_s = max(gain_s, left * _faster_s(predictor, job, pace, here) - stay_s)
        lacks = least_ms(ends_ms[job.id]) - int(gain_s * 1000.0) - SLACK_MS
        if lacks > 0:
            far.append((lacks, job))
        else:
            near.append(job)
    return near, far


def _slower_s(predictor: Predictor, job: JobView, pace: Pace) -> float:
    """By how much a step is longer at least, at any smaller size."""
    speeds_s = predictor.speeds_s(job, job.gpu_type)
    smaller = [speeds_s[size] for size in job.sizes if size < job.size]
    return min(smaller, default=NO_SIZE_S) - pace.step_s


def _faster_s(
    predictor: Predictor, job: JobView, pace: Pace, rooms: tuple[tuple[str, int], ...]
) -> float:
    """By how much a step is shorter at most, on GPUs of types of which there are so many."""
    faster_s = pace.faster_s.get(rooms)
    if faster_s is None:
        possible = [NO_SIZE_S]
        for kind, most in rooms:
            speeds_s = predictor.speeds_s(job, kind)
            possible += [speeds_s[size] for size in job.sizes if job.size <= size <= most]
        faster_s = pace.faster_s[rooms] = pace.step_s - min(possible)
    return faster_s
