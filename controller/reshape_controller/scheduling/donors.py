"""The running jobs that may give GPUs to a newcomer, and the figures of each of them.

Does: computes for each donor what does not depend on the newcomer, when it is first needed.
``bounds`` excludes most donors before that; ``evaluation`` evaluates the options of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from reshape_controller.core.model import HostId, JobId
from reshape_controller.core.plan import HostView, JobView
from reshape_controller.scheduling import gang_moves
from reshape_controller.scheduling.cluster_index import RunningClass, RunningEntry
from reshape_controller.scheduling.forecast import Forecast
from reshape_controller.scheduling.predictor import to_ms
from reshape_controller.scheduling.worker_rooms import Rooms

DonorSize = tuple[int, int, int, float, tuple[tuple[JobId, int]]]
"""A smaller size of a donor: the GPUs that it keeps, those that it releases, when it will have left
then (ms from now), the part of its steps that it does not do, and its id with the size, as an
option has them."""


class Exclusions:
    """Running jobs that are no donors in a search, with their number in each class."""

    def __init__(self, entries: list[RunningEntry]) -> None:
        """``entries`` may contain a job twice; it counts once."""
        self.entries = entries
        self.job_ids: dict[JobId, None] = {}
        self.count_by_class: dict[RunningClass, int] = {}
        for entry in entries:
            job_class = entry.job_class
            if job_class is not None and entry.job.id not in self.job_ids:
                self.job_ids[entry.job.id] = None
                self.count_by_class[job_class] = self.count_by_class.get(job_class, 0) + 1

    def rest_of(self, job_class: RunningClass) -> list[JobView]:
        """Return the jobs of a class that are not excluded."""
        return [entry.job for _, job_id, entry in job_class.entries if job_id not in self.job_ids]

    def count_rest_of(self, job_class: RunningClass) -> int:
        """Return the number of these jobs."""
        return len(job_class.entries) - self.count_by_class.get(job_class, 0)


class Donor(NamedTuple):
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
    reshape_ms: int
    """Time without training in a reshape."""
    smaller: list[DonorSize]


class Donors:
    """The running jobs that may give GPUs in one decision."""

    def __init__(
        self,
        forecast: Forecast,
        excluded: list[RunningEntry],
        min_saving_ms: Callable[[int], int],
        gangs: Sequence[JobView] = (),
    ) -> None:
        """``excluded``: jobs that may not be shrunk now; ``min_saving_ms`` gives what a reshape has
        to save, from the time until the donor has left; ``gangs``: those that may shrink."""
        self.exclusions, self.gangs = Exclusions(excluded), gangs
        self.forecast, self.min_saving_ms = forecast, min_saving_ms
        self._donors: dict[JobId, Donor] = {}

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
        donors = [job for job_class in classes for job in self.exclusions.rest_of(job_class)]
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
                and self.exclusions.count_rest_of(job_class)
            ):
                most = job_class.releases[0]
        for host in self.forecast.snapshot.idle:
            releases = [job.size - job.sizes[0] for job in self.on_host(host)]
            most = max(most, host.idle + max(releases, default=0))
        for host, released in self._released_by_gangs():
            most = max(most, host.idle + released)
        return most

    @cached_property
    def max_gpus_of_several(self) -> int:
        """The most GPUs that a newcomer can get on one host: idle ones, and those of all donors."""
        most = 0
        for host in self.forecast.snapshot.hosts:
            donors = self.by_host.get(host.id, ())
            most = max(most, host.idle + sum([job.size - job.sizes[0] for job in donors]))
        return most

    def _released_by_gangs(self) -> Iterator[tuple[HostView, int]]:
        """Yield each host of a gang that may shrink, with the GPUs that the gang can release
        there."""
        hosts, numbers = self.forecast.snapshot.hosts, self.forecast.numbers
        for job in self.gangs:
            for host, released in gang_moves.released(job, job.sizes[0]).items():
                yield hosts[numbers[host]], released

    def can_make_rooms(self, newcomer: JobView, hosts: Sequence[HostView]) -> bool:
        """Whether a job that may span fits on several of ``hosts`` if all donors give what they
        can."""
        rooms = Rooms(newcomer, newcomer.sizes[0], hosts)
        for donor in (*self.gangs, *self.on_hosts(list(hosts))):
            rooms.add(donor, donor.sizes[0])
        return rooms.are_enough

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
        forecast = self.forecast
        end, times = forecast.end_ms(job), forecast.predictor.donor_times(job)
        steps, fixed_s = times.steps, times.fixed_s
        smaller = [  # ``to_ms`` written out: it runs thousands of times in a decision
            (keeps, released, round((fixed_s + steps * step_s) * 1000.0), lost_part, shrinks)
            for keeps, released, step_s, lost_part, shrinks in times.smaller
        ]
        others_end = forecast.latest_end_without((job.id,))
        saving, reshape_ms = self.min_saving_ms(end), to_ms(times.reshape_s)
        return Donor(job, end, saving, others_end, times.release_s, reshape_ms, smaller)
