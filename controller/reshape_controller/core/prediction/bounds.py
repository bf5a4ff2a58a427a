"""What reshaping a running job could bring at best, and cost at least, from its pace alone.

Does: for each of many running jobs a bound of every size that it could get, in a few operations, so
that only those are weighed that could be worth it. Never: weighs anything, or is on the wrong side
(tests compare with every option). State: what does not change with time is kept on a job's pace.

A job with ``left`` steps that goes on with steps that are longer by ``d`` ends ``left * d`` and its
stop and start later. The most favourable of its sizes gives the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from reshape_controller.core.model import Mechanism
from reshape_controller.core.plan import HostView, JobView, Snapshot
from reshape_controller.core.prediction.forecast import Forecast
from reshape_controller.core.prediction.pace import Pace
from reshape_controller.core.prediction.predictor import Predictor, seen, to_ms

SLACK_MS = 2
"""For what is rounded."""
NO_SIZE_S = 1e9
"""Seconds by which a step is longer at a size that there is not."""

Rooms = tuple[tuple[str, int], ...]
"""GPU types, each with the most GPUs that a job could get on one host."""
UNKNOWN_MS = -(10**15)
"""What a job loses of which that is not known, or that may even end sooner."""
NEVER_MS = 10**15


@dataclass(slots=True, eq=False)
class Alike:
    """Running jobs that may give GPUs and differ in their times only. What a newcomer has to save
    for each, when it ends as it is, and what its reshape has to save on top of its costs are kept
    with its pace; here is the least of them."""

    idle: bool
    """Whether their hosts have idle GPUs."""
    kind: str
    """GPU type of their hosts."""
    gifts: tuple[int, ...]
    """How many GPUs each can give, the most first."""
    jobs: list[JobView] = field(default_factory=list)
    needs_ms: int = NEVER_MS
    end_ms: int = NEVER_MS
    least_ms: int = NEVER_MS

    def near(self, saves: int, late: int, shorter: int) -> list[JobView]:
        """Those that can be worth it: for which enough is saved, that free GPUs which somebody in
        the queue could use, or whose end brings that of all as much forward as it has to."""
        if self.needs_ms > saves and self.end_ms > late and self.least_ms > shorter:
            return []
        return [job for job in self.jobs if is_near(job, saves, late, shorter)]


def is_near(job: JobView, saves: int, late: int, shorter: int) -> bool:
    """See ``Alike.near``."""
    pace = seen(job)
    return pace.needs_ms <= saves or pace.end_ms <= late or pace.least_ms <= shorter


def losses(
    forecast: Forecast,
    hosts: Iterable[tuple[HostView, list[JobView]]],
    least_ms: Callable[[int], int],
) -> list[Alike]:
    """Put down with the pace of each job of ``hosts`` that gives GPUs what it loses at least. One
    loop on purpose: it runs for all."""
    predictor, now_s = forecast.predictor, forecast.snapshot.now_s
    found: dict[tuple[bool, str, tuple[int, ...]], Alike] = {}
    for host, jobs in hosts:
        for job in jobs:
            pace = predictor.pace(job)
            least = least_ms(pace.end_ms)
            gifts = pace.gifts
            if gifts is None:
                gifts = tuple([job.size - keeps for keeps in job.sizes if keeps < job.size])
                pace.gifts, pace.slower_s = gifts, _slower_s(predictor, job, pace)
            if not pace.trains or pace.slower_s < 0.0:
                needs = UNKNOWN_MS
            else:
                train_s = pace.until_s - now_s
                loss_s = train_s / pace.step_s * pace.slower_s if train_s > 0.0 else 0.0
                needs = int((loss_s + pace.stay_s) * 1000.0) - SLACK_MS + least
            pace.least_ms, pace.needs_ms = least, needs
            key = (host.idle > 0, host.gpu_type, gifts)
            alike = found.get(key)
            if alike is None:
                alike = found[key] = Alike(*key)
            alike.jobs.append(job)
            if needs < alike.needs_ms:
                alike.needs_ms = needs
            if pace.end_ms < alike.end_ms:
                alike.end_ms = pace.end_ms
            if least < alike.least_ms:
                alike.least_ms = least
    return list(found.values())


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """All that growth depends on but for the job and its host."""

    rooms: Rooms
    in_place: bool
    least_ms: Callable[[int], int]

    def covers(self, other: Asked) -> bool:
        """Whether a job for which it is not worth it here is none there either: the rules are the
        same, and no more GPUs are idle anywhere."""
        if self.in_place != other.in_place or self.least_ms != other.least_ms:
            return False
        most = dict(self.rooms)
        return all(room <= most.get(kind, -1) for kind, room in other.rooms)


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
        worth it now needs no second look until its pace changes, or more GPUs are idle.
        """
        near: list[JobView] = []
        asked = _asked(self._rooms, self._in_place, self._least_ms)
        covering: dict[object, bool] = {asked: True}
        for job in jobs:
            pace = self._predictor.pace(job)
            idle = self._idle[job.host] if job.host is not None else 0
            known = pace.no_growth
            if known is not None and pace.no_growth_idle >= idle:
                covers = covering.get(known)
                if covers is None:
                    covers = covering[known] = isinstance(known, Asked) and known.covers(asked)
                if covers:
                    continue
            if self._lacks_ms(job, pace) <= 0:
                near.append(job)
            elif pace.stay_s * 1000.0 > SLACK_MS:  # else rounding could decide at its end
                pace.no_growth, pace.no_growth_idle = asked, idle
        return near

    def _lacks_ms(self, job: JobView, pace: Pace) -> int:
        """What a job lacks at its best size; 0, if nobody knows when it ends."""
        if not pace.trains or job.host is None:
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


@lru_cache(maxsize=1024)
def _asked(rooms: Rooms, in_place: bool, least_ms: Callable[[int], int]) -> Asked:
    """One value for what is the same: comparing it would take longer than all the rest."""
    return Asked(rooms, in_place, least_ms)


def _slower_s(predictor: Predictor, job: JobView, pace: Pace) -> float:
    """By how much a step is longer at least, at any smaller size."""
    speeds_s = predictor.speeds_s(job, job.gpu_type)
    smaller = [speeds_s[size] for size in job.sizes if size < job.size]
    return min(smaller, default=NO_SIZE_S) - pace.step_s


def _faster_s(predictor: Predictor, job: JobView, pace: Pace, rooms: Rooms) -> float:
    """By how much a step is shorter at most, on GPUs of types of which there are so many."""
    shortest_s, largest = NO_SIZE_S, job.sizes[-1] if job.sizes else 0
    for kind, most in rooms:
        room = (kind, most if most < largest else largest)
        step_s = pace.shortest_s.get(room)
        if step_s is None:
            speeds_s = predictor.speeds_s(job, kind)
            possible = [speeds_s[size] for size in job.sizes if job.size <= size <= most]
            step_s = pace.shortest_s[room] = min(possible, default=NO_SIZE_S)
        if step_s < shortest_s:
            shortest_s = step_s
    return pace.step_s - shortest_s
