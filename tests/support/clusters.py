"""Snapshots for tests of policies, written so that every sum can be done by hand.

``Cluster`` builds hosts, and running and queued jobs whose speeds are given as seconds per step by
size, with round overheads. ``Reference`` is the definition of the makespan of an option, computed
from nothing and slowly; tests compare the forecast with it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from reshape_controller.core.model import (
    HostId,
    JobId,
    JobSpec,
    JobState,
    Length,
    LengthUnit,
    Mechanism,
    Placement,
    Spans,
)
from reshape_controller.core.plan import HostView, JobView, Snapshot, Target
from reshape_controller.core.profile_book import ProfileBook
from reshape_controller.scheduling.predictor import Predictor
from reshape_controller.scheduling.rules import V1, Objective, Rules
from reshape_profiles.schema import Overhead, Profile, SpeedPoint
from reshape_sidecar.wire import Progress

FREE = Overhead(0.0, 0.0, 0.0, 0.0, 0.0)
COSTS = Overhead(10.0, 20.0, 2.0, 3.0, 5.0)
"""Job start 10, process start 20, checkpoint 2, process stop 3, job stop 5: a newcomer needs 40
beside its training, a reshape in place costs 25 and one by restart 40, and a job's end takes 10."""
LINEAR = {1: 8.0, 2: 4.0, 4: 2.0, 8: 1.0}
FLAT = {1: 4.0, 2: 4.0, 4: 4.0, 8: 4.0}
HOST_S = 0.25
"""What each further host adds to a step of a job that may be on several."""
PAPER = {1: 2.04, 2: 1.2, 4: 0.85}
"""1.7 times the speed on two GPUs, 2.4 times on four."""


@dataclass
class Cluster:
    """A snapshot under construction."""

    hosts: dict[str, tuple[str, int]] = field(default_factory=lambda: {"a": ("V100", 4)})
    overhead: Overhead = FREE
    mechanism: Mechanism = Mechanism.SIDECAR
    now_s: float = 10_000.0
    seed: int = 0
    book: ProfileBook = field(default_factory=ProfileBook)
    running: list[JobView] = field(default_factory=list)
    queued: list[JobView] = field(default_factory=list)
    place: int = 0

    def runs(self, name: str, size: int, *, on: str = "a", **more: Any) -> Cluster:
        """A job that trains."""
        self.running.append(self._job(name, size, on, **more))
        return self

    def waits(self, name: str, *, on: str | None = None, **more: Any) -> Cluster:
        """A job in the queue; ``on``: initialised there."""
        more = {"initialized": on is not None, **more}
        self.queued.append(self._job(name, 0, on, **more))
        return self

    def _job(
        self,
        name: str,
        size: int,
        host: str | None,
        *,
        speed: Mapping[int, float] = LINEAR,
        speeds: Mapping[str, Mapping[int, float]] | None = None,
        sizes: Sequence[int] | None = None,
        left: int | None = 1000,
        max_wait_s: float | None = None,
        kind: str | None = None,
        workers: int = 1,
        span: Spans = Spans.NEVER,
        placement: Placement = Placement.PACK,
        **more: Any,
    ) -> JobView:
        """Make a view. ``speed``: seconds per step by size (``speeds``: by GPU type); ``left``:
        steps; ``kind``: the job type, else one of its own; ``more``: any field of the view. On
        several hosts a step takes ``HOST_S`` longer for each further one."""
        self.place += 1
        kind = kind or f"type of {name}"
        by_type = speeds or {gpu_type: speed for gpu_type, _ in self.hosts.values()}
        sizes = tuple(speed if sizes is None else sizes)
        points = tuple(
            SpeedPoint(gpu_type, gpus, seconds)
            for gpu_type, curve in by_type.items()
            for gpus, seconds in curve.items()
        )
        points += tuple(
            SpeedPoint(point.gpu_type, point.gpus, point.seconds_per_step + HOST_S, hosts=2)
            for point in points
            if workers > 1 and point.gpus > 1
        )
        self.book = self.book.with_profile(Profile(kind, speed=points, overhead=self.overhead))
        spec = JobSpec(
            name,
            ("train",),
            sizes,
            Length(LengthUnit.STEPS, float(left)) if left is not None else None,
            job_type=kind,
            max_wait_s=max_wait_s,
            workers=workers,
            span=span,
            placement=placement,
        )
        fields: dict[str, Any] = {
            "state": JobState.RUNNING if size else JobState.SUBMITTED,
            "frozen": False,
            "initialized": False,
            "submitted_at_s": self.now_s,
            "started_at_s": self.now_s if size else None,
            "not_before_s": 0.0,
            "no_shrink_before_s": 0.0,
            "reshaped_at_s": None,
            "progress": Progress(),
            "growable": left is not None,
            "trains": size > 0,
            "progress_at_s": self.now_s if size else None,
        }
        return JobView(
            id=JobId(name),
            spec=spec,
            place=self.place,
            sizes=sizes,
            size=size,
            host=HostId(host) if host else None,
            gpu_type=self.hosts[host][0] if host else "",
            **{**fields, **more},
        )

    def snapshot(self) -> Snapshot:
        used = dict.fromkeys(self.hosts, 0)
        for job in self.running:
            for host, gpus in gpus_by_host(job).items():
                used[host] += gpus
        return Snapshot(
            self.now_s,
            self.mechanism,
            tuple(self.queued),
            tuple(self.running),
            tuple(
                HostView(HostId(name), gpu_type, total - used[name], total, total)
                for name, (gpu_type, total) in sorted(self.hosts.items())
            ),
            self.book,
            self.seed,
        )


def gpus_by_host(job: JobView) -> dict[HostId, int]:
    """Return the GPUs of a running job on each of its hosts."""
    assert job.host is not None
    each = job.size // job.spec.workers
    return {share.host: share.workers * each for share in job.shares} or {job.host: job.size}


def sizes_by_job(targets: Sequence[Target]) -> dict[str, int]:
    """Return the size of each target by its job."""
    return {target.job: target.size for target in targets}


def with_lengths(snapshot: Snapshot, factor: float | None) -> Snapshot:
    """Return the cluster with every record's length times ``factor``; None: no record has one."""

    def changed(job: JobView) -> JobView:
        length = job.spec.length
        if length is not None:
            length = None if factor is None else replace(length, value=length.value * factor)
        return replace(job, spec=replace(job.spec, length=length), growable=length is not None)

    queued, running = map(changed, snapshot.queued), map(changed, snapshot.running)
    return replace(snapshot, queued=tuple(queued), running=tuple(running))


class Reference:
    """The definition, computed from nothing for every option. Times are milliseconds."""

    def __init__(
        self,
        snapshot: Snapshot,
        newcomer: JobId | None = None,
        head_max: int = 64,
        rules: Rules = V1,
    ) -> None:
        self.rules = rules
        self.snapshot = snapshot
        self.predictor = Predictor(snapshot)
        self.newcomer = newcomer
        queue = [job for job in snapshot.queued if self.fits(job)]
        self.head, self.tail = queue[:head_max], queue[head_max:]
        own = [job for job in self.tail if job.id == newcomer]
        if own:
            self.tail = [self.head[-1], *(job for job in self.tail if job.id != newcomer)]
            self.head = self.head[:-1] + own

    def fits(self, job: JobView) -> bool:
        """Return whether usable hosts could hold the job at its smallest size."""
        usable = job.only_host is None or any(h.id == job.only_host for h in self.snapshot.hosts)
        alone = any(host.usable >= min(job.sizes) for host in self.snapshot.hosts)
        return usable and (alone or any(self._fewest(job, kind) for kind in self._kinds))

    @property
    def _kinds(self) -> list[str]:
        return sorted({host.gpu_type for host in self.snapshot.hosts})

    def _fewest(self, job: JobView, kind: str) -> int:
        """The fewest hosts of a GPU type, by trying all sets of them, that hold the workers of a
        job which may be on several; 0 if it may not, or if they do not."""
        spec, hosts = job.spec, self.snapshot.hosts
        if spec.span is Spans.NEVER or spec.workers < 2 or job.only_host is not None:
            return 0
        each = min(job.sizes) // spec.workers
        slots = [host.usable // each for host in hosts if host.gpu_type == kind]
        for count in range(1, len(slots) + 1):
            if any(sum(some) >= spec.workers for some in itertools.combinations(slots, count)):
                return count
        return 0

    def evaluate(self, targets: Sequence[Target]) -> tuple[int, int]:
        """Return makespan and sum of completion times if ``targets`` are done, in the order of the
        objective."""
        wanted = {target.job: target for target in targets}
        kinds = {host.id: host.gpu_type for host in self.snapshot.hosts}
        free: dict[HostId, list[int]] = {host.id: [] for host in self.snapshot.hosts}
        ends: list[int] = []
        release_s = max([0.0, *(self.predictor.release_s(job) for job in self._shrinks(wanted))])
        newcomer_end = self._newcomer_end(wanted, kinds, release_s)
        start = wanted.get(self.newcomer) if self.newcomer is not None else None
        lent = dict.fromkeys(free, 0)
        wants = dict.fromkeys(free, 0) | (self._gpus_of(start) if start is not None else {})
        released = dict.fromkeys(free, 0)
        for job in self.snapshot.running:
            target = wanted.get(job.id)
            if target is None:
                end = round(self.predictor.unchanged(job).total_s * 1000)
                parts = gpus_by_host(job)
            else:
                moves = (target.host, target.shares) != (job.host, job.shares)
                kind, hosts = kinds[target.host], len(target.all_hosts)
                then = self.predictor.reshaped(job, kind, target.size, moves=moves, hosts=hosts)
                end = round(then.total_s * 1000)
                before, parts = gpus_by_host(job), self._gpus_of(target)
                if moves:
                    release_ms = round(self.predictor.release_s(job) * 1000)
                    for host, count in before.items():
                        free[host] += [release_ms] * (count - parts.get(host, 0))
                lent_end = self._lent_end(job, target, newcomer_end)
                for host in parts if not moves else ():
                    gives = before[host] - parts[host]
                    released[host] += gives
                    if lent_end < end:
                        given = min(gives, wants[host] - lent[host])
                        parts[host] += given
                        lent[host] += given
                end = min(end, int(lent_end)) if lent_end < end and not moves else end
            ends.append(end)
            for part, count in parts.items():
                if part in free:
                    free[part] += [end] * count
        if start is not None:
            ends.append(newcomer_end)
            for host, count in wants.items():
                free[host] += [newcomer_end] * (count - lent[host])
                free[host] += [round(release_s * 1000)] * (released[host] - count)
        for view in self.snapshot.hosts:
            free[view.id] += [0] * (view.usable - len(free[view.id]))
            assert len(free[view.id]) == view.usable
        for job in self.head:
            if start is None or job.id != self.newcomer:
                ends.append(self._schedule(job, free))
        free_ms = [time for times in free.values() for time in times]
        area = sum(self._area(job) for job in self.tail)
        level = -(-(sum(free_ms) + area) // len(free_ms)) if free_ms else 0
        makespan, total = max([*ends, level if area else 0]), sum(ends)
        return (
            (makespan, total) if self.rules.objective is Objective.MAKESPAN else (total, makespan)
        )

    def _shrinks(self, wanted: Mapping[JobId, Target]) -> list[JobView]:
        return [
            job
            for job in self.snapshot.running
            if job.id in wanted
            and (wanted[job.id].host, wanted[job.id].shares) == (job.host, job.shares)
            and wanted[job.id].size < job.size
        ]

    def _gpus_of(self, target: Target) -> dict[HostId, int]:
        """The GPUs of a target on each of its hosts."""
        jobs = (*self.snapshot.running, *self.snapshot.queued)
        each = target.size // next(job.spec.workers for job in jobs if job.id == target.job)
        on_several = {share.host: share.workers * each for share in target.shares}
        return on_several or {target.host: target.size}

    def _newcomer_end(
        self, wanted: Mapping[JobId, Target], kinds: Mapping[HostId, str], release_s: float
    ) -> int:
        start = wanted.get(self.newcomer) if self.newcomer is not None else None
        if start is None:
            return 0
        newcomer = next(job for job in self.snapshot.queued if job.id == self.newcomer)
        kind, hosts = kinds[start.host], len(start.all_hosts)
        incoming = self.predictor.incoming(newcomer, kind, start.size, release_s, hosts)
        return round(incoming.total_s * 1000)

    def _lent_end(self, job: JobView, target: Target, newcomer_end: int) -> float:
        """When a donor ends that gets its GPUs back after the newcomer: it trains on at its smaller
        size from a reshape to the newcomer's end, and at its old one after another reshape."""
        kept_s = self.predictor.reshaped(job, job.gpu_type, target.size).total_s
        is_shrink = job in self._shrinks({job.id: target})
        if not self.rules.lends or not is_shrink or job.loses or newcomer_end >= kept_s * 1000:
            return math.inf
        reshape_ms = round(self.predictor.reshape_s(job) * 1000)
        before_ms = round(self.predictor.unchanged(job).total_s * 1000)
        stay_ms = max(0, newcomer_end - reshape_ms)
        sizes, hosts = (job.size, target.size), len(target.all_hosts)
        steps_s = [self.predictor.step_s(job, job.gpu_type, n, hosts) for n in sizes]
        return before_ms + 2 * reshape_ms + round(stay_ms * (1.0 - steps_s[0] / steps_s[1]))

    def _schedule(self, job: JobView, free: dict[HostId, list[int]]) -> int:
        size = min(job.sizes)
        best: tuple[int, str, int, HostId] | None = None
        for number, host in enumerate(self.snapshot.hosts):
            times = sorted(free[host.id])
            if len(times) < size:
                continue
            takes_s = self.predictor.incoming(job, host.gpu_type, size).total_s
            end = times[size - 1] + round(takes_s * 1000)
            if best is None or (end, host.gpu_type, number) < best[:3]:
                best = (end, host.gpu_type, number, host.id)
        gang_end = self._schedule_gang(job, free, None if best is None else best[0])
        if gang_end is not None:
            return gang_end
        assert best is not None
        times = sorted(free[best[3]])
        free[best[3]] = times[size:] + [best[0]] * size
        return best[0]

    def _schedule_gang(
        self, job: JobView, free: dict[HostId, list[int]], before: int | None
    ) -> int | None:
        """Give each worker the slot that is free first, on the GPU type where the job ends first;
        None if it may not be on several hosts, or ends no sooner there than ``before``."""
        best: tuple[int, list[tuple[int, int, HostId]]] | None = None
        each = min(job.sizes) // job.spec.workers
        for kind in self._kinds if job.spec.span is not Spans.NEVER else ():
            slots = []
            for number, host in enumerate(self.snapshot.hosts):
                if host.gpu_type == kind:
                    times = sorted(free[host.id])
                    slots += [(time, number, host.id) for time in times[each - 1 :: each]]
            slots = sorted(slots)[: job.spec.workers]
            if not self._fewest(job, kind) or len(slots) < job.spec.workers:
                continue
            end = slots[-1][0] + self._gang_takes(job, kind)
            if (before is None or end < before) and (best is None or end < best[0]):
                best = end, slots
        if best is None:
            return None
        for _, _, taken in best[1]:
            free[taken] = sorted(free[taken])[each:]
        for _, _, taken in best[1]:
            free[taken] = free[taken] + [best[0]] * each
        return best[0]

    def _gang_takes(self, job: JobView, kind: str) -> int:
        hosts = max(2, self._fewest(job, kind))
        takes = self.predictor.incoming(job, kind, min(job.sizes), hosts=hosts)
        return round(takes.total_s * 1000)

    def _area(self, job: JobView) -> int:
        size, takes = min(job.sizes), []
        for kind in self._kinds:
            hosts = [host for host in self.snapshot.hosts if host.gpu_type == kind]
            spans = self._fewest(job, kind) > 0
            if spans:
                takes.append(self._gang_takes(job, kind))
            if not spans or any(host.usable >= size for host in hosts):
                alone = self.predictor.incoming(job, kind, size)
                takes.append(round(alone.total_s * 1000))
        return size * min(takes)
