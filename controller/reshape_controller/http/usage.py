"""GPU-seconds by job, host and use, from the spans of the timeline.

Does: takes each change of a GPU's use, and adds up the time between two changes for any stretch of
time. Each GPU has one use at each moment from its first record on, so the sum over all uses is the
number of GPUs times the time. State: the closed segments in arrays, by the time of their end.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from reshape_controller.core.model import GpuId, HostId, Job, JobId
from reshape_gpu.usage import By, Usage, UsageRow


class Use(StrEnum):
    """What a GPU does: four uses by a job, and three without one."""

    TRAINED = "trained"
    STARTING = "starting"
    SAVING = "saving"
    """Its job saves, stops, or has stopped and the release is not verified yet."""
    WAITING = "waiting"
    """It is reserved for a job that does not start on it yet."""
    FREE = "free"
    QUARANTINED = "quarantined"
    SILENT = "silent"
    """Its host is silent or does not show it, or no controller ran for long."""


USES = {
    "training": Use.TRAINED,
    "starting": Use.STARTING,
    "saving": Use.SAVING,
    "stopping": Use.SAVING,
    "releasing": Use.SAVING,
    "reserved": Use.WAITING,
    "quarantined": Use.QUARANTINED,
    "lost": Use.SILENT,
}
"""The use of a GPU by the phase of its span in the timeline; without a span it is free."""
UNKNOWN, UNKNOWN_LOSS = ("", ""), (0, False)
"""User and type, and the loss, of a job that had ended before the oldest snapshot of the log, and
whose GPUs were not free yet."""
_NUMBERS = {use: number for number, use in enumerate(Use)}
_MEMBERS = tuple(Use)


class Holder(NamedTuple):
    """A job, or None for no job, on GPUs of a host."""

    job: JobId | None
    host: HostId
    gpu_type: str


Open = tuple[Holder, Use, float]
"""Holder and use of a GPU, and the time since when."""
Totals = dict[tuple[Holder, Use], float]


class UsageBook:
    """Collects segments; a segment is a number of GPUs with one holder and use, from one time to
    another."""

    def __init__(self) -> None:
        self._numbers: dict[Holder, int] = {}
        self._holders: list[Holder] = []
        self._holder, self._use, self._count = array("L"), array("B"), array("L")
        self._from_s, self._to_s = array("d"), array("d")
        self._closed: Totals = defaultdict(float)
        self._open: dict[GpuId, Open] = {}
        self._begin_s: dict[GpuId, float] = {}
        self._jobs: dict[JobId, tuple[str, str]] = {}
        """User and job type of each job that held a GPU."""
        self._lost: dict[JobId, tuple[int, bool]] = {}
        """Steps that each of these jobs has lost, and whether that is known to be all."""
        self._repeated: dict[JobId, float] = {}
        self._held: dict[JobId, Holder] = {}
        """Newest holder of each job's GPUs."""
        self._repeats: list[tuple[float, Holder, float]] = []
        """Time, holder and GPU-seconds of each loss."""
        self._last: dict[Open, int] = {}
        """Segments that end at the newest time, by what was open."""
        self._by_host: dict[tuple[HostId, Use], float] = defaultdict(float)
        """GPU-seconds of the closed segments, for ``of_hosts``."""

    def book(self, gpu: GpuId, holder: Holder, use: Use, at_s: float) -> None:
        """Give a GPU a holder and a use from now on."""
        before = self._open.get(gpu)
        if before is None:
            self._begin_s[gpu] = at_s
        elif before[:2] == (holder, use):
            return
        else:
            self._close(before, at_s)
        self._open[gpu] = (holder, use, at_s)
        if holder.job is not None:
            self._held[holder.job] = holder

    def pass_gap(self, from_s: float, to_s: float) -> None:
        """Charge nobody for a time in which no controller ran; then all goes on as before."""
        before = dict(self._open)
        for gpu, (holder, _, _) in before.items():
            self.book(gpu, holder._replace(job=None), Use.SILENT, from_s)
        for gpu, (holder, use, _) in before.items():
            self.book(gpu, holder, use, to_s)

    def know(self, job: Job, at_s: float) -> None:
        """Take in whose job it is, of which type, and what it has lost until now."""
        more_gpu_s = job.repeated_gpu_s - self._repeated.get(job.id, 0.0)
        if more_gpu_s > 0 and job.id in self._held:
            self._repeats.append((at_s, self._held[job.id], more_gpu_s))
            self._repeated[job.id] = job.repeated_gpu_s
        self._lost[job.id] = (job.steps_lost, job.all_loss_known)
        self._jobs[job.id] = (job.spec.user, job.spec.job_type or "")

    def _close(self, segment: Open, at_s: float) -> None:
        holder, use, since_s = segment
        if at_s <= since_s:
            return
        self._closed[holder, use] += at_s - since_s
        self._by_host[holder.host, use] += at_s - since_s
        if self._to_s and self._to_s[-1] != at_s:
            self._last.clear()
        number = self._last.get(segment)
        if number is not None:
            self._count[number] += 1
            return
        self._last[segment] = len(self._to_s)
        if holder not in self._numbers:
            self._numbers[holder] = len(self._holders)
            self._holders.append(holder)
        self._holder.append(self._numbers[holder])
        self._use.append(_NUMBERS[use])
        self._count.append(1)
        self._from_s.append(since_s)
        self._to_s.append(at_s)

    def of_hosts(self, to_s: float) -> dict[tuple[HostId, Use], float]:
        """Return the GPU-seconds of each host and use from the beginning to ``to_s``; its cost does
        not grow with the number of jobs."""
        sums = defaultdict(float, self._by_host)
        for holder, use, since_s in self._open.values():
            sums[holder.host, use] += max(0.0, to_s - since_s)
        return sums

    def usage(self, by: By, from_s: float, to_s: float, user: str | None = None) -> Usage:
        """Return the usage in a stretch of time; GPUs go on as they are now up to its end.

        ``user``: only rows of this user's jobs.
        """
        sums: dict[tuple[str, str], list[float]] = {}
        jobs: set[JobId] = set()
        for (holder, use), gpu_s in self._totals(from_s, to_s).items():
            if user is not None and self._user(holder) != user:
                continue
            name = self._name(by)(holder)
            row = sums.setdefault((name, holder.gpu_type), [0.0] * len(Use))
            row[_NUMBERS[use]] += gpu_s
            jobs |= {holder.job} if holder.job is not None else set()
        repeated: dict[tuple[str, str], float] = defaultdict(float)
        for at_s, holder, gpu_s in self._repeats:
            of_user = user is None or self._user(holder) == user
            if from_s < at_s <= to_s and of_user:
                repeated[self._name(by)(holder), holder.gpu_type] += gpu_s
        rows = tuple(
            _row(*key, gpu_s, repeated.get(key, 0.0)) for key, gpu_s in sorted(sums.items())
        )
        begins = self._begin_s.values()
        all_gpu_s = sum(max(0.0, to_s - max(from_s, begin_s)) for begin_s in begins)
        begin_s = max(from_s, min(begins, default=from_s))
        lost = [self._lost.get(job, UNKNOWN_LOSS) for job in jobs]
        return Usage(
            min(begin_s, to_s),
            to_s,
            by.value,
            rows,
            all_gpu_s,
            sum(steps for steps, _ in lost),
            all(known for _, known in lost),
        )

    def _user(self, holder: Holder) -> str | None:
        return self._jobs.get(holder.job, UNKNOWN)[0] if holder.job is not None else None

    def _name(self, by: By) -> Callable[[Holder], str]:
        match by:
            case By.TYPE:
                return lambda holder: holder.gpu_type
            case By.HOST:
                return lambda holder: holder.host
            case By.JOB:
                return lambda holder: holder.job or ""
        part = 0 if by is By.USER else 1
        jobs = self._jobs
        return lambda holder: (
            jobs.get(holder.job, UNKNOWN)[part] or "-" if holder.job is not None else ""
        )

    def _totals(self, from_s: float, to_s: float) -> Totals:
        whole = not self._to_s or (from_s <= min(self._begin_s.values()) and to_s >= self._to_s[-1])
        totals: Totals = defaultdict(float, self._closed if whole else {})
        for segment, gpu_s in () if whole else self._cut(from_s, to_s):
            totals[segment] += gpu_s
        for holder, use, since_s in self._open.values():
            gpu_s = to_s - max(from_s, since_s)
            if gpu_s > 0:
                totals[holder, use] += gpu_s
        return totals

    def _cut(self, from_s: float, to_s: float) -> Iterator[tuple[tuple[Holder, Use], float]]:
        """Yield the closed segments in a stretch of time."""
        for number in range(bisect_right(self._to_s, from_s), len(self._to_s)):
            begin_s, end_s = self._from_s[number], self._to_s[number]
            seconds = min(end_s, to_s) - max(begin_s, from_s)
            if seconds > 0:
                what = self._holders[self._holder[number]], _MEMBERS[self._use[number]]
                yield what, self._count[number] * seconds


def _row(name: str, gpu_type: str, gpu_s: list[float], repeated_gpu_s: float) -> UsageRow:
    trained, starting, saving, waiting, *others = gpu_s
    held = trained + starting + saving + waiting
    row = UsageRow(name, gpu_type, trained, starting, saving, waiting, held, *others)
    return replace(row, repeated_gpu_s=min(repeated_gpu_s, trained))
