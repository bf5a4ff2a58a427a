"""The single decisions that can be weighed against each other, with what each would change.

Does: enumerates starts on idle GPUs, starts on GPUs that one running job gives up (or several, for
a job that waited too long), and growth or a move of a running job; each with the completion times
and GPU times that follow from it. Never: weighs them. State: none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reshape_controller.core.model import HostId, JobId
from reshape_controller.core.plan import HostView, JobView, Target
from reshape_controller.scheduling import legal_moves
from reshape_controller.scheduling.forecast import Forecast
from reshape_controller.scheduling.list_schedule import HostChange
from reshape_controller.scheduling.predictor import to_ms


class Rank(NamedTuple):
    """A weighed option. It is better than those that sort behind it: all jobs end earlier, or the
    sum of their completion times is less. The last ties: fewer GPUs moved, then ids and sizes."""

    makespan_ms: int
    total_ms: int
    moved: int
    """GPUs that change hands."""
    job: JobId
    size: int
    host: HostId
    shrinks: tuple[tuple[JobId, int], ...] = ()
    """Running jobs that give GPUs, and the size that each keeps."""

    @property
    def targets(self) -> tuple[Target, ...]:
        """What a plan that takes the option asks for."""
        given = (Target(donor, keeps, self.host) for donor, keeps in self.shrinks)
        return (Target(self.job, self.size, self.host), *given)


@dataclass(frozen=True, slots=True)
class Candidate:
    """An option, with its effect."""

    job: JobView
    size: int
    host: HostId
    shrinks: tuple[tuple[JobView, int], ...]
    """Running jobs that give GPUs, and the size that each keeps."""
    ends: tuple[tuple[JobView, int], ...]
    changes: tuple[HostChange, ...]
    moved: int

    @property
    def reshaped(self) -> list[JobView]:
        """The running jobs that it reshapes: those that give, or the one that gets."""
        return [donor for donor, _ in self.shrinks] or [self.job]

    def ranked(self, makespan_ms: int, total_ms: int) -> Rank:
        """The option once it is weighed."""
        shrinks = tuple((donor.id, keeps) for donor, keeps in self.shrinks)
        return Rank(makespan_ms, total_ms, self.moved, self.job.id, self.size, self.host, shrinks)


def on_idle(forecast: Forecast, newcomer: JobView, hosts: list[HostView]) -> Iterator[Candidate]:
    """Starts that reshape nobody: each size, on each GPU type the host that it fills best.
    ``hosts``: at least those with idle GPUs on which it may be."""
    fits = Fits(hosts)
    for size in newcomer.sizes:
        for host in fits.beside(size):
            end = to_ms(forecast.predictor.incoming_s(newcomer, host.gpu_type, size))
            change = (forecast.numbers[host.id], (0,) * size, (end,) * size)
            yield Candidate(newcomer, size, host.id, (), ((newcomer, end),), (change,), moved=size)


def gifts(donor: JobView, sizes: Sequence[int], idle: int) -> list[tuple[int, int]]:
    """Sizes of a newcomer, each with a size that ``donor`` may keep for it beside ``idle`` GPUs:
    those by which enough and not too much is given. Where there is none, those by which too much
    is given, and as little of it as can be."""
    kept = [keeps for keeps in donor.sizes if keeps < donor.size]
    wanted = [size for size in sizes if size > idle]
    exact = [
        (size, keeps)
        for size in wanted
        for keeps in kept
        if size - idle <= donor.size - keeps <= size
    ]
    return exact or spare(donor, wanted, idle)


def spare(donor: JobView, sizes: Sequence[int], idle: int) -> list[tuple[int, int]]:
    """For each size the largest that the donor may keep, whatever is left over."""
    found = []
    for size in sizes:
        enough = [keeps for keeps in donor.sizes if size - idle <= donor.size - keeps]
        if enough:
            found.append((size, max(enough)))
    return found


def from_one(
    forecast: Forecast,
    newcomer: JobView,
    hosts: list[HostView],
    donors: dict[HostId, list[JobView]],
) -> Iterator[Candidate]:
    """Starts on idle GPUs and on those that one running job gives up (see ``gifts``)."""
    for host in hosts:
        for donor in donors.get(host.id, ()):
            for size, keeps in gifts(donor, newcomer.sizes, host.idle):
                yield shrink(forecast, newcomer, size, host, donor, keeps)


def shrink(
    forecast: Forecast, newcomer: JobView, size: int, host: HostView, donor: JobView, keeps: int
) -> Candidate:
    """A start on ``size`` GPUs of which ``donor`` gives all that it does not keep; what the
    newcomer does not take becomes idle."""
    predictor, kind = forecast.predictor, host.gpu_type
    before = forecast.end_ms(donor)
    donor_end = to_ms(predictor.reshaped_by_size_s(donor, kind)[keeps])
    release_s = predictor.release_s(donor)
    end = to_ms(predictor.incoming_s(newcomer, kind, size) + release_s)
    takes = donor.size - keeps
    gone = (0,) * (size - takes) + (before,) * donor.size
    come = (donor_end,) * keeps + (end,) * size + (to_ms(release_s),) * (takes - size)
    return Candidate(
        newcomer,
        size,
        host.id,
        ((donor, keeps),),
        ((donor, donor_end), (newcomer, end)),
        ((forecast.numbers[host.id], gone, come),),
        moved=max(size, takes),
    )


def from_several(
    forecast: Forecast,
    newcomer: JobView,
    hosts: list[HostView],
    donors: dict[HostId, list[JobView]],
) -> Iterator[Candidate]:
    """Starts at the smallest size on GPUs of as many jobs of one host as it takes: those first
    that have most training left, each down to the smallest size by which it gives not too much."""
    size = min(newcomer.sizes)
    predictor = forecast.predictor
    for host in hosts:
        here = donors.get(host.id, [])
        if len(here) < 2:
            continue
        missing, shrinks = size - host.idle, []
        for donor in sorted(here, key=lambda job: (-forecast.end_ms(job), job.id)):
            sizes = [keeps for keeps in donor.sizes if 0 < donor.size - keeps <= missing]
            if missing <= 0 or not sizes:
                continue
            keeps = min(sizes)
            shrinks.append((donor, keeps))
            missing -= donor.size - keeps
        if missing > 0 or len(shrinks) < 2:
            continue
        release_s = max(predictor.release_s(donor) for donor, _ in shrinks)
        end = to_ms(predictor.incoming_s(newcomer, host.gpu_type, size) + release_s)
        ends, gone, come = [(newcomer, end)], (0,) * min(host.idle, size), (end,) * size
        for donor, keeps in shrinks:
            donor_end = to_ms(predictor.reshaped_by_size_s(donor, host.gpu_type)[keeps])
            ends.append((donor, donor_end))
            gone += (forecast.end_ms(donor),) * donor.size
            come += (donor_end,) * keeps
        yield Candidate(
            newcomer,
            size,
            host.id,
            tuple(shrinks),
            tuple(ends),
            ((forecast.numbers[host.id], gone, come),),
            moved=size,
        )


def growths(forecast: Forecast, hosts: list[HostView]) -> Iterator[Candidate]:
    """A running job takes idle GPUs of its host, or moves to the GPUs of another that are idle.
    ``hosts``: at least those with idle GPUs."""
    by_id = {host.id: host for host in hosts}
    fits = Fits(hosts)
    for job in legal_moves.growable(forecast.snapshot):
        own = by_id.get(job.host) if job.host is not None else None
        for size, host in larger(job, own, fits):
            yield grow(forecast, job, size, host)


def larger(job: JobView, own: HostView | None, fits: Fits) -> Iterator[tuple[int, HostView]]:
    """Sizes that a running job may get, each with a host: its ``own`` one as far as that has idle
    GPUs, or another, where the job can be elsewhere. One as large only on GPUs of another type."""
    most = job.size + own.idle if own is not None else 0
    for size in job.sizes:
        if size < job.size:
            continue
        if own is not None and job.size < size <= most:
            yield size, own
        for other in fits.beside(size, job.host) if job.only_host is None else ():
            better = size > job.size or other.gpu_type != job.gpu_type
            if better and legal_moves.may_be(job, other.id):
                yield size, other


def grow(forecast: Forecast, job: JobView, size: int, host: HostView) -> Candidate:
    """A running job on ``size`` GPUs: more of its own host, or those of another; the GPUs that it
    leaves are free once its container has ended."""
    here = host.id == job.host
    end = to_ms(forecast.predictor.reshaped_by_size_s(job, host.gpu_type, moves=not here)[size])
    before = (forecast.end_ms(job),) * job.size
    number = forecast.numbers[host.id]
    ends = ((job, end),)
    if here:
        add = size - job.size
        changes: tuple[HostChange, ...] = ((number, (0,) * add + before, (end,) * size),)
        return Candidate(job, size, host.id, (), ends, changes, moved=add)
    changes = ((number, (0,) * size, (end,) * size),)
    if job.host is not None and job.host in forecast.numbers:
        free = (to_ms(forecast.predictor.release_s(job)),) * job.size
        changes = ((forecast.numbers[job.host], before, free), *changes)
    return Candidate(job, size, host.id, (), ends, changes, moved=size)


class Fits:
    """On each GPU type the host with the fewest idle GPUs that are enough."""

    def __init__(self, hosts: list[HostView]) -> None:
        self._hosts = hosts
        self._most = legal_moves.most_idle(hosts)
        self._best: dict[int, list[list[HostView]]] = {}

    def beside(self, size: int, without: HostId | None = None) -> list[HostView]:
        """These hosts, ``without`` not counted; GPU types in alphabetical order."""
        if size > self._most:
            return []
        best = self._best.get(size)
        if best is None:
            best = self._best[size] = self._two_of_each(size)
        found = []
        for two in best:
            if two[0].id != without:
                found.append(two[0])
            elif len(two) > 1:
                found.append(two[1])
        return found

    def _two_of_each(self, size: int) -> list[list[HostView]]:
        best: dict[str, list[HostView]] = {}
        enough = [host for host in self._hosts if host.idle >= size]
        for host in sorted(enough, key=lambda host: (host.idle, host.id)):
            two = best.setdefault(host.gpu_type, [])
            if len(two) < 2:
                two.append(host)
        return [best[kind] for kind in sorted(best)]
