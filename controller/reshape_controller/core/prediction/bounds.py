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
from reshape_controller.core.plan import JobView, Snapshot
from reshape_controller.core.prediction.forecast import Forecast
from reshape_controller.core.prediction.pace import Pace
from reshape_controller.core.prediction.predictor import Predictor, to_ms

SLACK_MS = 2
"""For what is rounded."""
NO_SIZE_S = 1e9
"""Seconds by which a step is longer at a size that there is not."""

Loss = tuple[int, int, int, JobView]
"""A job that may give GPUs: what a newcomer has to save for it at least, when the job ends as it
is, what its reshape has to save on top of its costs (ms); the job."""
Gifts = tuple[int, ...]
"""How many GPUs a job can give, the most first."""
Rooms = tuple[tuple[str, int], ...]
"""GPU types, each with the most GPUs that a job could get on one host."""
UNKNOWN_MS = -(10**15)
"""What a job loses of which that is not known, or that may even end sooner."""


def losses(
    forecast: Forecast, jobs: Iterable[JobView], least_ms: Callable[[int], int]
) -> dict[Gifts, list[Loss]]:
    """What jobs lose at least that give GPUs, by how many they can give. One loop on purpose: it
    runs for all."""
    predictor, ends_ms, now_s = forecast.predictor, forecast.ends_ms, forecast.snapshot.now_s
    found: dict[Gifts, list[Loss]] = {}
    for job in jobs:
        pace, before = job.pace or predictor.pace(job), ends_ms[job.id]
        least = least_ms(before)
        gifts = pace.gifts
        if gifts is None:
            gifts = pace.gifts = tuple(job.size - keeps for keeps in job.sizes if keeps < job.size)
            pace.slower_s = _slower_s(predictor, job, pace)
        if pace.since_s is None or pace.slower_s < 0.0:
            needs = UNKNOWN_MS
        else:
            train_s = pace.until_s - now_s
            loss_s = train_s / pace.step_s * pace.slower_s if train_s > 0.0 else 0.0
            needs = int((loss_s + pace.stay_s) * 1000.0) - SLACK_MS + least
        alike = found.get(gifts)
        if alike is None:
            alike = found[gifts] = []
        alike.append((needs, before, least, job))
    return found


class Growth:
    """What more GPUs could bring to running jobs at best, with the GPUs that are idle now."""

    def __init__(
        self, predictor: Predictor, snapshot: Snapshot, least_ms: Callable[[int], int]
    ) -> None:
        """``least_ms`` gives what has to be saved, from what the job has left."""
        self._predictor, self._now_s, self._least_ms = predictor, snapshot.now_s, least_ms
        self._in_place = snapshot.mechanism is not Mechanism.TERMINATE
        self._idle = {host.id: host.idle for host in snapshot.hosts}
        most: dict[str, int] = {}
        for host in snapshot.hosts:
            if host.idle > most.get(host.gpu_type, -1):
                most[host.gpu_type] = host.idle
        self._rooms: Rooms = tuple(sorted(most.items()))

    def near_and_far(
        self, jobs: Iterable[JobView]
    ) -> tuple[list[JobView], list[tuple[int, JobView]]]:
        """Jobs for which it could be worth it, and the others with what they lack (ms)."""
        near: list[JobView] = []
        far: list[tuple[int, JobView]] = []
        for job in jobs:
            lacks = self._lacks_ms(job, self._predictor.pace(job))
            if lacks > 0:
                far.append((lacks, job))
            else:
                near.append(job)
        return near, far

    def near(self, jobs: Iterable[JobView]) -> list[JobView]:
        """Jobs for which it could be worth it.

        What a job would save and what it had to save both fall steadily while it trains, and at
        its end it would save nothing and lose the costs of a reshape. So a job for which it is not
        worth it now needs no second look until its pace or the idle GPUs change.
        """
        near, idle, valid = [], self._idle, self._predictor.valid
        asked = (self._rooms, self._in_place, self._least_ms)
        for job in jobs:
            pace = job.pace
            if pace is None or pace.answers is not valid.get(pace.job_type):
                pace = self._predictor.pace(job)
            known = (idle[job.host] if job.host is not None else 0, asked)
            if pace.no_growth == known:
                continue
            if self._lacks_ms(job, pace) <= 0:
                near.append(job)
            elif pace.stay_s * 1000.0 > SLACK_MS:  # else rounding could decide at its end
                pace.no_growth = known
        return near

    def _lacks_ms(self, job: JobView, pace: Pace) -> int:
        """What a job lacks at its best size; 0, if nobody knows when it ends."""
        if pace.since_s is None or job.host is None:
            return 0
        train_s = max(0.0, pace.until_s - self._now_s)
        left = train_s / pace.step_s
        leave_s = pace.stay_s + pace.cost.job_stop_s + pace.cost.job_init_s
        gain_s = left * _faster_s(self._predictor, job, pace, self._rooms) - leave_s
        idle = self._idle[job.host]
        if idle:
            here = ((job.gpu_type, job.size + idle),)
            stay_s = pace.stay_s if self._in_place else leave_s
            gain_s = max(gain_s, left * _faster_s(self._predictor, job, pace, here) - stay_s)
        before = to_ms(train_s + pace.tail_s)
        return self._least_ms(before) - int(gain_s * 1000.0) - SLACK_MS


def _slower_s(predictor: Predictor, job: JobView, pace: Pace) -> float:
    """By how much a step is longer at least, at any smaller size."""
    speeds_s = predictor.speeds_s(job, job.gpu_type)
    smaller = [speeds_s[size] for size in job.sizes if size < job.size]
    return min(smaller, default=NO_SIZE_S) - pace.step_s


def _faster_s(predictor: Predictor, job: JobView, pace: Pace, rooms: Rooms) -> float:
    """By how much a step is shorter at most, on GPUs of types of which there are so many."""
    faster_s = pace.faster_s.get(rooms)
    if faster_s is None:
        possible = [NO_SIZE_S]
        for kind, most in rooms:
            speeds_s = predictor.speeds_s(job, kind)
            possible += [speeds_s[size] for size in job.sizes if job.size <= size <= most]
        faster_s = pace.faster_s[rooms] = pace.step_s - min(possible)
    return faster_s
