"""The options of one decision, each with the completion times and free GPUs that follow from it.

Does: enumerates starts on idle GPUs, starts on GPUs that one running job releases (or several, for
an overdue job), and the growth or move of a running job. This is the plain definition:
``evaluation`` evaluates most options without making a candidate, and tests compare the two. No
candidate is evaluated here. Times are milliseconds from now.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reshape_controller.core.fast_replace import fast_init
from reshape_controller.core.model import HostId, JobId, Share
from reshape_controller.core.plan import HostView, JobView, Target
from reshape_controller.scheduling import legal_moves
from reshape_controller.scheduling.forecast import Forecast
from reshape_controller.scheduling.list_schedule import HostChange
from reshape_controller.scheduling.predictor import to_ms
from reshape_controller.scheduling.rules import Rules


class RankedOption(NamedTuple):
    """An evaluated option. It is better than those that sort behind it. The other fields break
    ties: fewer GPUs moved, then ids and sizes."""

    first_ms: int
    """The figure that decides: by the objective the makespan or the sum of completion times."""
    second_ms: int
    """The other one of these two figures."""
    moved: int
    """The number of GPUs that change hands."""
    job: JobId
    """The job that starts, grows or moves."""
    size: int
    host: HostId
    """The host of its first worker."""
    shrinks: tuple[tuple[JobId, int], ...] = ()
    """The donors, and the size that each keeps."""
    elsewhere: tuple[tuple[JobId, tuple[Share, ...]], ...] = ()
    """Those of these jobs that are not on ``host`` alone, with their workers by host."""

    @property
    def shares(self) -> tuple[Share, ...]:
        """The workers of the job by host, if it is to be on several."""
        return dict(self.elsewhere).get(self.job, ())

    @property
    def hosts(self) -> tuple[HostId, ...]:
        """The hosts of the job, each once."""
        return tuple([share.host for share in self.shares]) or (self.host,)

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets of a plan that takes the option."""
        elsewhere, targets = dict(self.elsewhere), []
        for job, size in ((self.job, self.size), *self.shrinks):
            shares = elsewhere.get(job, ())
            host = shares[0].host if shares else self.host
            targets.append(Target(job, size, host, shares if len(shares) > 1 else ()))
        return tuple(targets)

    def stays(self, job: JobView) -> bool:
        """Whether ``job``, which the option is about, stays on its hosts."""
        return self.host == job.host and self.shares == job.shares


@fast_init
@dataclass(frozen=True, slots=True)
class Candidate:
    """An option that is not evaluated yet, with its effect on jobs and GPUs."""

    job: JobView
    """The job that starts, grows or moves."""
    size: int
    host: HostId
    shrinks: tuple[tuple[JobView, int], ...]
    """The donors, and the size that each keeps."""
    ends: tuple[tuple[JobView, int], ...]
    """The jobs whose completion times change, each with the new one."""
    changes: tuple[HostChange, ...]
    """How the free times of GPUs change on each host."""
    moved: int
    """The number of GPUs that change hands."""
    shares: tuple[Share, ...] = ()
    """The workers of the job by host, if it is to be on several; ``host`` is the first."""

    @property
    def reshaped(self) -> list[JobView]:
        """The running jobs that the option reshapes: its donors, or the job that grows or moves."""
        return [donor for donor, _ in self.shrinks] or [self.job]

    def ranked(self, first_ms: int, second_ms: int) -> RankedOption:
        """Return the option with the result of its evaluation."""
        shrinks = tuple((donor.id, keeps) for donor, keeps in self.shrinks)
        elsewhere = [(self.job.id, self.shares)] if self.shares else []
        for donor, _ in self.shrinks:
            if donor.shares:
                elsewhere.append((donor.id, donor.shares))
            elif donor.host != self.host and donor.host is not None:
                elsewhere.append((donor.id, (Share(donor.host, donor.spec.workers),)))
        return RankedOption(
            first_ms,
            second_ms,
            self.moved,
            self.job.id,
            self.size,
            self.host,
            shrinks,
            tuple(elsewhere),
        )


def idle_starts(
    forecast: Forecast, newcomer: JobView, hosts: list[HostView]
) -> Iterator[Candidate]:
    """Yield the starts that reshape no running job: each size, on the best-fitting host of each
    GPU type. ``hosts``: at least those with idle GPUs on which the newcomer may start."""
    best_fit = BestFit(hosts)
    for size in newcomer.sizes:
        for host in best_fit.hosts_for(size):
            end = to_ms(forecast.predictor.incoming_s(newcomer, host.gpu_type, size))
            change = (forecast.numbers[host.id], (0,) * size, (end,) * size)
            yield Candidate(newcomer, size, host.id, (), ((newcomer, end),), (change,), moved=size)


def shrink_sizes(donor: JobView, sizes: Sequence[int], idle: int) -> list[tuple[int, int]]:
    """Return sizes of a newcomer on a host with ``idle`` GPUs, each with a size that ``donor`` may
    keep for it. The donor releases enough, and not more than the newcomer takes. If there is no
    such pair, it releases more, but as little as it can."""
    smaller = [keeps for keeps in donor.sizes if keeps < donor.size]
    larger_than_idle = [size for size in sizes if size > idle]
    exact = [
        (size, keeps)
        for size in larger_than_idle
        for keeps in smaller
        if size - idle <= donor.size - keeps <= size
    ]
    return exact or surplus_sizes(donor, larger_than_idle, idle)


def surplus_sizes(donor: JobView, sizes: Sequence[int], idle: int) -> list[tuple[int, int]]:
    """Return each size of a newcomer with the largest size that the donor may keep for it, however
    many GPUs are left over."""
    pairs = []
    for size in sizes:
        enough = [keeps for keeps in donor.sizes if size - idle <= donor.size - keeps]
        if enough:
            pairs.append((size, max(enough)))
    return pairs


def single_donor_starts(
    forecast: Forecast,
    newcomer: JobView,
    hosts: list[HostView],
    donors: dict[HostId, list[JobView]],
) -> Iterator[Candidate]:
    """Yield the starts on idle GPUs and those that one donor releases (see ``shrink_sizes``)."""
    for host in hosts:
        for donor in donors.get(host.id, ()):
            for size, keeps in shrink_sizes(donor, newcomer.sizes, host.idle):
                yield shrink(forecast, newcomer, size, host, donor, keeps)


def shrink(
    forecast: Forecast, newcomer: JobView, size: int, host: HostView, donor: JobView, keeps: int
) -> Candidate:
    """Return the start on ``size`` GPUs for which ``donor`` shrinks to ``keeps``. GPUs that it
    releases and the newcomer does not take become idle."""
    predictor, gpu_type = forecast.predictor, host.gpu_type
    donor_end_before = forecast.end_ms(donor)
    release_s = predictor.release_s(donor)
    end = to_ms(predictor.incoming_s(newcomer, gpu_type, size) + release_s)
    donor_end, returns = donor_end_ms(forecast, donor, keeps, end)
    released = donor.size - keeps
    removed = (0,) * (size - released) + (donor_end_before,) * donor.size
    returned = min(size, released) if returns else 0
    added = (donor_end,) * (keeps + returned) + (end,) * (size - returned)
    added += (to_ms(release_s),) * (released - size)
    return Candidate(
        newcomer,
        size,
        host.id,
        ((donor, keeps),),
        ((donor, donor_end), (newcomer, end)),
        ((forecast.numbers[host.id], removed, added),),
        moved=max(size, released),
    )


def donor_end_ms(
    forecast: Forecast, donor: JobView, keeps: int, newcomer_end: int
) -> tuple[int, bool]:
    """Return when a donor will have left that keeps so many GPUs, and whether it gets the others
    back once the newcomer has ended (``Rules.lends``)."""
    predictor = forecast.predictor
    end = to_ms(predictor.reshaped_by_size_s(donor, donor.gpu_type)[keeps])
    if not forecast.rules.lends or donor.loses or newcomer_end >= end:
        return end, False
    lent_end = predictor.lent_end_ms(donor, keeps, forecast.end_ms(donor), newcomer_end)
    return (lent_end, True) if lent_end < end else (end, False)


def multi_donor_starts(
    forecast: Forecast,
    newcomer: JobView,
    hosts: list[HostView],
    donors: dict[HostId, list[JobView]],
) -> Iterator[Candidate]:
    """Yield the starts at the smallest size on GPUs of as many donors of a host as it takes."""
    size, choose = min(newcomer.sizes), _cheapest if forecast.rules.lends else _last_to_end
    predictor = forecast.predictor
    for host in hosts:
        on_host = donors.get(host.id, [])
        if len(on_host) < 2:
            continue
        alone_ms = to_ms(predictor.incoming_s(newcomer, host.gpu_type, size))
        shrinks = choose(forecast, on_host, size - host.idle, alone_ms)
        if len(shrinks) < 2:
            continue
        release_s = max(predictor.release_s(donor) for donor, _ in shrinks)
        end = to_ms(predictor.incoming_s(newcomer, host.gpu_type, size) + release_s)
        ends, removed, freed_at_end = [(newcomer, end)], (0,) * min(host.idle, size), size
        added: tuple[int, ...] = ()
        for donor, keeps in shrinks:
            donor_end, returns = donor_end_ms(forecast, donor, keeps, end)
            ends.append((donor, donor_end))
            removed += (forecast.end_ms(donor),) * donor.size
            added += (donor_end,) * (donor.size if returns else keeps)
            freed_at_end -= donor.size - keeps if returns else 0
        added += (end,) * freed_at_end
        yield Candidate(
            newcomer,
            size,
            host.id,
            tuple(shrinks),
            tuple(ends),
            ((forecast.numbers[host.id], removed, added),),
            moved=size,
        )


def _last_to_end(
    forecast: Forecast, donors: list[JobView], missing: int, alone_ms: int
) -> list[tuple[JobView, int]]:
    """Return the donors that end last, each with the smallest size by which it does not release too
    much; none if they do not release enough."""
    shrinks = []
    for donor in sorted(donors, key=lambda job: (-forecast.end_ms(job), job.id)):
        sizes = [keeps for keeps in donor.sizes if 0 < donor.size - keeps <= missing]
        if missing > 0 and sizes:
            keeps = min(sizes)
            shrinks.append((donor, keeps))
            missing -= donor.size - keeps
    return shrinks if missing <= 0 else []


def _cheapest(
    forecast: Forecast, donors: list[JobView], missing: int, alone_ms: int
) -> list[tuple[JobView, int]]:
    """Return the donors whose GPUs cost least, each with the size that it keeps; none if they do
    not release enough. A donor may go down step by step; a step costs its loss for each GPU.

    ``alone_ms``: when the newcomer would end on GPUs that are idle now.
    """
    kept = {donor.id: donor.size for donor in donors}
    losses = {donor.id: 0 for donor in donors}
    while missing > 0:
        steps = []
        for donor in donors:
            now = kept[donor.id]
            smaller = [keeps for keeps in donor.sizes if 0 < now - keeps <= missing]
            if smaller:
                keeps = max(smaller)
                end, _ = donor_end_ms(forecast, donor, keeps, alone_ms)
                loss = end - forecast.end_ms(donor)
                steps.append(((loss - losses[donor.id]) / (now - keeps), donor.id, keeps, loss))
        if not steps:
            return []
        _, job_id, keeps, loss = min(steps)
        missing -= kept[job_id] - keeps
        kept[job_id], losses[job_id] = keeps, loss
    given = [(donor, kept[donor.id]) for donor in donors if kept[donor.id] < donor.size]
    return sorted(given, key=lambda entry: entry[0].id)


def growths(forecast: Forecast, hosts: list[HostView]) -> Iterator[Candidate]:
    """Yield the growths and moves of running jobs: a job takes idle GPUs of its host, or moves to
    idle GPUs of another. ``hosts``: at least those with idle GPUs."""
    by_id = {host.id: host for host in hosts}
    best_fit = BestFit(hosts)
    for job in legal_moves.growable(forecast.snapshot):
        own = by_id.get(job.host) if job.host is not None else None
        for size, host in growth_sizes(job, own, best_fit, forecast.rules):
            yield grow(forecast, job, size, host)


def growth_sizes(
    job: JobView, own: HostView | None, best_fit: BestFit, rules: Rules
) -> Iterator[tuple[int, HostView]]:
    """Yield sizes that a running job may get, each with a host: its ``own`` host if enough GPUs
    are idle there, and the best-fitting other hosts. Its present size, and with
    ``moves_to_any_size`` a smaller one, count on another GPU type only."""
    largest_here = job.size + own.idle if own is not None else 0
    for size in job.sizes:
        if size < job.size and not rules.moves_to_any_size:
            continue
        if own is not None and job.size < size <= largest_here:
            yield size, own
        for other in best_fit.hosts_for(size, job.host) if job.only_host is None else ():
            is_new = size > job.size or other.gpu_type != job.gpu_type
            if is_new and legal_moves.may_run_on(job, other.id):
                yield size, other


def grow(forecast: Forecast, job: JobView, size: int, host: HostView) -> Candidate:
    """Return the growth of a running job to ``size`` GPUs of its host, or its move to those of
    another. The GPUs that a move leaves are free once the container has ended."""
    stays = host.id == job.host
    end = to_ms(forecast.predictor.reshaped_by_size_s(job, host.gpu_type, moves=not stays)[size])
    before = (forecast.end_ms(job),) * job.size
    number = forecast.numbers[host.id]
    ends = ((job, end),)
    if stays:
        add = size - job.size
        changes: tuple[HostChange, ...] = ((number, (0,) * add + before, (end,) * size),)
        return Candidate(job, size, host.id, (), ends, changes, moved=add)
    changes = ((number, (0,) * size, (end,) * size),)
    if job.host is not None and job.host in forecast.numbers:
        free = (to_ms(forecast.predictor.release_s(job)),) * job.size
        changes = ((forecast.numbers[job.host], before, free), *changes)
    return Candidate(job, size, host.id, (), ends, changes, moved=size)


class BestFit:
    """Finds, on each GPU type, the host with the fewest idle GPUs that are enough."""

    def __init__(self, hosts: list[HostView]) -> None:
        idle = [host for host in hosts if host.idle]
        self._hosts = sorted(idle, key=lambda host: (host.idle, host.id))
        """The hosts with idle GPUs, those with the fewest first."""
        self._best: dict[int, list[list[HostView]]] = {}
        """By size: for each GPU type the best host, and the second best if there is one."""

    def hosts_for(self, size: int, without: HostId | None = None) -> list[HostView]:
        """Return the best host but ``without`` for ``size`` GPUs of each type, types in
        alphabetical order."""
        best = self._best.get(size)
        if best is None:
            best = self._best[size] = self._two_best(size)
        hosts = []
        for two in best:
            if two[0].id != without:
                hosts.append(two[0])
            elif len(two) > 1:
                hosts.append(two[1])
        return hosts

    def _two_best(self, size: int) -> list[list[HostView]]:
        by_type: dict[str, list[HostView]] = {}
        for host in self._hosts:
            if host.idle >= size:
                two = by_type.setdefault(host.gpu_type, [])
                if len(two) < 2:
                    two.append(host)
        return [by_type[gpu_type] for gpu_type in sorted(by_type)]
