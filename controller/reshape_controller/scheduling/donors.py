"""The running jobs that may give GPUs to a newcomer, and the bound that prunes most of them.

Does: computes for each donor what does not depend on the newcomer, when it is first needed; finds
the donors whose options can save enough. It evaluates no option: ``evaluation`` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from reshape_controller.core.model import HostId, JobId
from reshape_controller.core.plan import HostView, JobView
from reshape_controller.scheduling.forecast import Forecast, Outlook
from reshape_controller.scheduling.predictor import to_ms
from reshape_controller.scheduling.running_classes import (
    ROUNDING_MS,
    BoundContext,
    DonorThreshold,
    Exclusions,
    MaxGain,
    RunningClass,
    RunningEntry,
)

DonorSize = tuple[int, int, int, tuple[tuple[JobId, int]]]
"""A smaller size of a donor: the GPUs that it keeps, those that it releases, when it will have left
then (ms from now), and its id with the size, as an option has them."""


@dataclass(frozen=True, slots=True)
class Donor:
    """A running job that may give GPUs, with the figures that no newcomer changes. Times are
    milliseconds from now."""

    job: JobView
    end_ms: int
    """When it will have left if it keeps its size."""
    min_saving_ms: int
    """What its reshape has to save."""
    others_end_ms: int
    """When the last of the other running jobs will have left."""
    release_s: float
    """Seconds from the request until its GPUs are free."""
    smaller: list[DonorSize]


class Donors:
    """The running jobs that may give GPUs in one decision."""

    def __init__(
        self, forecast: Forecast, excluded: list[RunningEntry], min_saving_ms: Callable[[int], int]
    ) -> None:
        """``excluded``: jobs that may not be shrunk now; ``min_saving_ms`` gives what a reshape has
        to save, from the time until the donor has left."""
        self.exclusions = Exclusions(excluded)
        self.forecast, self.min_saving_ms = forecast, min_saving_ms
        self.context = BoundContext(forecast.snapshot.now_s, forecast.now_ms, min_saving_ms)
        self._donors: dict[JobId, Donor] = {}

    @cached_property
    def class_thresholds(self) -> list[tuple[RunningClass, DonorThreshold]]:
        """The classes whose jobs can release GPUs, each with its lowest threshold."""
        thresholds: list[tuple[RunningClass, DonorThreshold]] = []
        for job_class in self.forecast.running_index.classes.values():
            if job_class.releases:
                job_class.refresh_slowdowns(self.forecast.predictor)
                thresholds.append((job_class, job_class.lowest_threshold(self.context)))
        return thresholds

    def on_host(self, host: HostView) -> list[JobView]:
        """Return the donors on a host."""
        donors: list[JobView] = []
        for entry in self.forecast.running_index.on_host[self.forecast.numbers[host.id]].values():
            job_class = entry.job_class
            if (
                job_class is not None
                and job_class.releases
                and entry.job.id not in self.exclusions.job_ids
            ):
                donors.append(entry.job)
        return donors

    def on_hosts(self, hosts: list[HostView]) -> list[JobView]:
        """Return the donors on any of ``hosts``."""
        forecast = self.forecast
        classes = [entry for entry in forecast.running_index.classes.values() if entry.releases]
        donors = [job for job_class in classes for job in job_class.jobs(self.exclusions)]
        if len(hosts) == len(forecast.numbers):
            return donors
        host_ids = {host.id for host in hosts}
        return [job for job in donors if job.host in host_ids]

    @cached_property
    def by_host(self) -> dict[HostId, list[JobView]]:
        """The donors by host; hosts without any are left out."""
        donors: dict[HostId, list[JobView]] = {}
        for job in self.on_hosts(list(self.forecast.snapshot.hosts)):
            assert job.host is not None
            donors.setdefault(job.host, []).append(job)
        return donors

    @cached_property
    def max_gpus(self) -> int:
        """The most GPUs that a newcomer can get on one host: idle ones, and those of one donor."""
        most = 0
        for job_class in self.forecast.running_index.classes.values():
            if (
                job_class.releases
                and job_class.releases[0] > most
                and job_class.count(self.exclusions)
            ):
                most = job_class.releases[0]
        for host in self.forecast.snapshot.idle:
            releases = [job.size - job.sizes[0] for job in self.on_host(host)]
            most = max(most, host.idle + max(releases, default=0))
        return most

    def donor(self, job: JobView) -> Donor:
        """Return the figures of one donor."""
        donor = self._donors.get(job.id)
        if donor is None:
            donor = self._donors[job.id] = self._compute(job)
        return donor

    @cached_property
    def min_release_s(self) -> float:
        """A lower bound on the seconds until any running job has released GPUs."""
        predictor, costs = self.forecast.predictor, self.forecast.running_index.costs
        return min([predictor.release_cost_s(cost) for cost in costs], default=0.0)

    @cached_property
    def split_of_all(self) -> tuple[list[JobView], Exclusions]:
        """``split_by_idle`` for a newcomer that may be on any host."""
        idle = self.forecast.snapshot.idle
        return self._split(list(idle), [self.forecast.numbers[host.id] for host in idle])

    def split_by_idle(self, hosts: list[HostView]) -> tuple[list[JobView], Exclusions]:
        """Return the donors on those of ``hosts`` that have idle GPUs, and the exclusions that
        leave the donors on the full ones: all jobs on other hosts, and the usual exclusions."""
        numbers = self.forecast.numbers
        full = {numbers[host.id]: None for host in hosts if not host.idle}
        others = [number for number in numbers.values() if number not in full]
        return self._split([host for host in hosts if host.idle], others)

    def _split(self, idle: list[HostView], left_out: list[int]) -> tuple[list[JobView], Exclusions]:
        if not left_out:
            return [], self.exclusions
        on_host = self.forecast.running_index.on_host
        beside_idle = [job for host in idle for job in self.on_host(host)]
        others = [entry for number in left_out for entry in on_host[number].values()]
        return beside_idle, Exclusions([*self.exclusions.entries, *others])

    def _compute(self, job: JobView) -> Donor:
        forecast, predictor = self.forecast, self.forecast.predictor
        end = forecast.end_ms(job)
        totals_s = predictor.reshaped_by_size_s(job, job.gpu_type)
        smaller = [
            (size, job.size - size, to_ms(totals_s[size]), ((job.id, size),))
            for size in job.sizes
            if size < job.size
        ]
        others_end, release_s = forecast.latest_end_without((job.id,)), predictor.release_s(job)
        return Donor(job, end, self.min_saving_ms(end), others_end, release_s, smaller)


@dataclass(slots=True)
class DonorSearch:
    """The result of a search for donors."""

    candidates: list[JobView]
    """Donors whose options have to be evaluated."""
    pruned: list[tuple[int, JobView]]
    """Donors that fail the bound, each with what a newcomer would have to save (ms); filled only
    for a snapshot whose plan is explained."""
    pruned_count: int = 0
    """How many donors fail the bound."""


def find_donors(
    outlook: Outlook,
    newcomer: JobView,
    hosts: list[HostView],
    donors: Donors,
    baseline: tuple[int, int],
) -> DonorSearch:
    """Find the donors on ``hosts`` whose options for a newcomer may save enough against
    ``baseline``, a makespan and a sum of completion times (ms).

    An option that does not change the schedule of the queue saves what it saves the newcomer, less
    the donor's loss. The bound relies on that. Where it may not hold, every donor is a candidate:
    on hosts with idle GPUs, and where the donor releases more than the newcomer takes.
    """
    search, forecast, queue = DonorSearch([], []), outlook.forecast, outlook.if_started
    if not forecast.running_index.classes:
        return search
    any_host = len(hosts) == len(forecast.numbers)
    beside_idle, exclusions = donors.split_of_all if any_host else donors.split_by_idle(hosts)
    search.candidates += beside_idle
    makespan_gain = baseline[0] - max(queue.last_ms, forecast.latest[0][0])
    total_if_waiting = baseline[1] - forecast.ends_sum_ms - queue.sum_ms
    gains = _MaxGains(outlook, newcomer, donors.min_release_s, total_if_waiting, makespan_gain)
    context = donors.context
    for job_class, lowest in donors.class_thresholds:
        if job_class.releases[0] < newcomer.sizes[0]:
            continue
        gain = gains.of(job_class.release_key)
        if gain is None:
            search.candidates += job_class.jobs(exclusions)
            continue
        candidates: list[JobView] = []
        if lowest.is_met_by(gain):
            candidates = job_class.candidates(gain, context, exclusions)
        search.candidates += candidates
        search.pruned_count += job_class.count(exclusions) - len(candidates)
        if forecast.snapshot.explain:
            search.pruned += job_class.pruned(gain, context, exclusions)
    return search


class _MaxGains:
    """Upper bounds on what the GPUs of one donor bring to a newcomer."""

    def __init__(
        self,
        outlook: Outlook,
        newcomer: JobView,
        min_release_s: float,
        total_if_waiting: int,
        makespan_gain: int,
    ) -> None:
        """``total_if_waiting``: the completion time of the newcomer if it waits, with what that
        costs other jobs (ms); ``makespan_gain``: an upper bound on how much the makespan falls."""
        self._outlook, self._newcomer = outlook, newcomer
        self._min_release_s, self._total_if_waiting = min_release_s, total_if_waiting
        self._makespan_gain = makespan_gain
        self._gains: dict[tuple[int, tuple[int, ...]], MaxGain | None] = {}
        types = outlook.forecast.types
        self._queue_limits = outlook.reach.limits_ms if outlook.others else [-1] * len(types)

    def of(self, release_key: tuple[int, tuple[int, ...]]) -> MaxGain | None:
        """Return the bounds for donors of a GPU type that can release these numbers of GPUs; None
        if no bound holds for them."""
        gains = self._gains
        if release_key not in gains:
            gains[release_key] = self._compute(*release_key)
        return gains[release_key]

    def _compute(self, type_number: int, releases: tuple[int, ...]) -> MaxGain | None:
        job, alone = self._newcomer, not self._outlook.others
        queue_limit = self._queue_limits[type_number]
        sizes = [size for size in job.sizes if size in releases]
        if alone and not sizes:
            sizes = [size for size in job.sizes if size <= releases[0]]
        if not sizes:
            return None
        forecast = self._outlook.forecast
        gpu_type, predictor = forecast.types[type_number], forecast.predictor
        shortest_s = min([predictor.incoming_s(job, gpu_type, size) for size in sizes])
        end = to_ms(shortest_s + self._min_release_s) - ROUNDING_MS
        if end <= queue_limit:
            return None
        return MaxGain(self._total_if_waiting - end, queue_limit, self._makespan_gain)
