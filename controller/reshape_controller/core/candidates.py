"""The single decisions that can be weighed against each other, with what each would change.

Does: enumerates starts on idle GPUs, starts on GPUs that one running job gives up (or several, for
a job that waited too long), and growth or a move of a running job; each with the completion times
and GPU times that follow from it. Never: weighs them. State: none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reshape_controller.core import moves
from reshape_controller.core.forecast import Change, Forecast, to_ms
from reshape_controller.core.model import HostId, JobId
from reshape_controller.core.plan import HostView, JobView, Target


@dataclass(frozen=True, slots=True)
class Candidate:
    """An option, with its effect. ``moved``: GPUs that change hands."""

    job: JobView
    size: int
    host: HostId
    shrinks: tuple[tuple[JobView, int], ...]
    """Running jobs that give GPUs, and the size that each keeps."""
    ends: tuple[tuple[JobId, int], ...]
    changes: tuple[Change, ...]
    moved: int

    @property
    def targets(self) -> tuple[Target, ...]:
        given = ((donor.id, keeps) for donor, keeps in self.shrinks)
        return moves.start(self.job, self.size, self.host, *given)

    @property
    def order(self) -> tuple[int, str, int, str, tuple[tuple[str, int], ...]]:
        """The last ties: fewer GPUs moved, then ids and sizes."""
        shrinks = tuple((donor.id, keeps) for donor, keeps in self.shrinks)
        return (self.moved, self.job.id, self.size, self.host, shrinks)


def on_idle(forecast: Forecast, newcomer: JobView, hosts: list[HostView]) -> Iterator[Candidate]:
    """Starts that reshape nobody: each size, on each GPU type the host that it fills best."""
    for size in newcomer.sizes:
        for host in _best_fits(hosts, size):
            end = to_ms(forecast.predictor.incoming_s(newcomer, host.gpu_type, size))
            change = (forecast.numbers[host.id], (0,) * size, (end,) * size)
            yield Candidate(
                newcomer, size, host.id, (), ((newcomer.id, end),), (change,), moved=size
            )


def from_one(
    forecast: Forecast,
    newcomer: JobView,
    hosts: list[HostView],
    donors: dict[HostId, list[JobView]],
) -> Iterator[Candidate]:
    """Starts on idle GPUs and on those that one running job gives up: for each of its smaller
    sizes by which enough GPUs are free, and no more than the newcomer takes."""
    for host in hosts:
        for donor in donors.get(host.id, ()):
            for keeps in donor.sizes:
                for size in newcomer.sizes:
                    if 0 < size - host.idle <= donor.size - keeps <= size:
                        yield shrink(forecast, newcomer, size, host, donor, keeps)


def shrink(
    forecast: Forecast, newcomer: JobView, size: int, host: HostView, donor: JobView, keeps: int
) -> Candidate:
    """A start on ``size`` GPUs of which ``donor`` gives all that it does not keep."""
    predictor, kind = forecast.predictor, host.gpu_type
    before = forecast.ends_ms[donor.id]
    donor_end = to_ms(predictor.reshaped_to_s(donor, kind)[keeps])
    end = to_ms(predictor.incoming_s(newcomer, kind, size) + predictor.release_s(donor))
    gone = (0,) * (size - donor.size + keeps) + (before,) * donor.size
    come = (donor_end,) * keeps + (end,) * size
    return Candidate(
        newcomer,
        size,
        host.id,
        ((donor, keeps),),
        ((donor.id, donor_end), (newcomer.id, end)),
        ((forecast.numbers[host.id], gone, come),),
        moved=size,
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
        here = sorted(donors.get(host.id, ()), key=lambda job: (-forecast.ends_ms[job.id], job.id))
        missing, shrinks = size - host.idle, []
        for donor in here:
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
        ends, gone, come = [(newcomer.id, end)], (0,) * min(host.idle, size), (end,) * size
        for donor, keeps in shrinks:
            donor_end = to_ms(predictor.reshaped_to_s(donor, host.gpu_type)[keeps])
            ends.append((donor.id, donor_end))
            gone += (forecast.ends_ms[donor.id],) * donor.size
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
    """A running job takes idle GPUs of its host, or moves to the GPUs of another that are idle."""
    by_id = {host.id: host for host in hosts}
    for job in moves.growable(forecast.snapshot):
        host = by_id.get(job.host) if job.host is not None else None
        if host is not None and host.idle:
            yield from _in_place(forecast, job, host)
        yield from _elsewhere(forecast, job, [other for other in hosts if other.id != job.host])


def _in_place(forecast: Forecast, job: JobView, host: HostView) -> Iterator[Candidate]:
    sizes = [size for size in job.sizes if job.size < size <= job.size + host.idle]
    if not sizes:
        return
    then_s = forecast.predictor.reshaped_to_s(job, host.gpu_type)
    for size in sizes:
        end, add = to_ms(then_s[size]), size - job.size
        gone = (0,) * add + (forecast.ends_ms[job.id],) * job.size
        change = (forecast.numbers[host.id], gone, (end,) * size)
        yield Candidate(job, size, host.id, (), ((job.id, end),), (change,), moved=add)


def _elsewhere(forecast: Forecast, job: JobView, others: list[HostView]) -> Iterator[Candidate]:
    """More GPUs, or as many of another type, on another host; the old ones are free after it."""
    if job.host not in forecast.numbers or max((h.idle for h in others), default=0) < job.size:
        return
    free = to_ms(forecast.predictor.release_s(job))
    left = (forecast.numbers[job.host], (forecast.ends_ms[job.id],) * job.size, (free,) * job.size)
    for size in job.sizes:
        if size < job.size:
            continue
        for host in _best_fits(others, size):
            if size == job.size and host.gpu_type == job.gpu_type:
                continue
            then_s = forecast.predictor.reshaped_to_s(job, host.gpu_type, moves=True)
            end = to_ms(then_s[size])
            taken = (forecast.numbers[host.id], (0,) * size, (end,) * size)
            yield Candidate(job, size, host.id, (), ((job.id, end),), (left, taken), moved=size)


def _best_fits(hosts: list[HostView], size: int) -> list[HostView]:
    """On each GPU type the host with the fewest idle GPUs that are enough."""
    best: dict[str, HostView] = {}
    for host in hosts:
        if host.idle >= size:
            known = best.get(host.gpu_type)
            if known is None or host.idle < known.idle:
                best[host.gpu_type] = host
    return [best[kind] for kind in sorted(best)]
