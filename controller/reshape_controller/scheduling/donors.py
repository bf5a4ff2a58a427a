"""The running jobs that may give GPUs, and which of them are worth a closer look.

Does: says of each what no newcomer changes, when somebody asks; rules out those none of whose
options can save enough, by their bounds. Never: weighs an option. State: figures of one decision.
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
    SLACK_MS,
    BoundRules,
    Exclusions,
    Gain,
    Needs,
    RunningClass,
    RunningEntry,
)


@dataclass(frozen=True, slots=True)
class Donor:
    """A running job that may give GPUs: what of its options no newcomer changes."""

    job: JobView
    before_ms: int
    """When it ends as it is."""
    least_ms: int
    """What its reshape has to save."""
    others_ms: int
    """When the last of the others ends."""
    release_s: float
    keeps: list[tuple[int, int, int, tuple[tuple[JobId, int]]]]
    """Smaller sizes: the size, what it takes from the job, when the job ends then, and the two as
    an option has them."""


class Donors:
    """The running jobs that may give GPUs. What it takes to weigh one is made when one is."""

    def __init__(
        self, forecast: Forecast, excluded: list[RunningEntry], least_ms: Callable[[int], int]
    ) -> None:
        """``apart``: jobs that are not asked now; ``least_ms`` gives what has to be saved, from
        what the victim has left."""
        self.excluded = Exclusions(excluded)
        self.forecast, self.least_ms = forecast, least_ms
        self.rules = BoundRules(forecast.snapshot.now_s, forecast.now_ms, least_ms)
        self._made: dict[JobId, Donor] = {}

    @cached_property
    def first(self) -> list[tuple[RunningClass, Needs]]:
        """Those that are alike, with what the first of them needs."""
        found: list[tuple[RunningClass, Needs]] = []
        for job_class in self.forecast.running_index.classes.values():
            if job_class.gifts:
                job_class.renew(self.forecast.predictor)
                found.append((job_class, job_class.first(self.rules)))
        return found

    def on(self, host: HostView) -> list[JobView]:
        """Those on a host."""
        found: list[JobView] = []
        for entry in self.forecast.running_index.on_host[self.forecast.numbers[host.id]].values():
            job_class = entry.job_class
            if (
                job_class is not None
                and job_class.gifts
                and entry.job.id not in self.excluded.names
            ):
                found.append(entry.job)
        return found

    def among(self, hosts: list[HostView]) -> list[JobView]:
        """Those on any of ``hosts``."""
        forecast = self.forecast
        job_class = [one for one in forecast.running_index.classes.values() if one.gifts]
        found = [job for one in job_class for job in one.all(self.excluded)]
        if len(hosts) == len(forecast.numbers):
            return found
        asked = {host.id for host in hosts}
        return [job for job in found if job.host in asked]

    @cached_property
    def by_host(self) -> dict[HostId, list[JobView]]:
        """Those on each host that has any."""
        found: dict[HostId, list[JobView]] = {}
        for job in self.among(list(self.forecast.snapshot.hosts)):
            assert job.host is not None
            found.setdefault(job.host, []).append(job)
        return found

    @cached_property
    def most(self) -> int:
        """The most GPUs of one host that are idle or that one job can give."""
        most = 0
        for job_class in self.forecast.running_index.classes.values():
            if job_class.gifts and job_class.gifts[0] > most and job_class.count(self.excluded):
                most = job_class.gifts[0]
        for host in self.forecast.snapshot.idle:
            gifts = [job.size - job.sizes[0] for job in self.on(host)]
            most = max(most, host.idle + max(gifts, default=0))
        return most

    def of(self, job: JobView) -> Donor:
        """All about one."""
        donor = self._made.get(job.id)
        if donor is None:
            donor = self._made[job.id] = self._make(job)
        return donor

    @cached_property
    def release_s(self) -> float:
        """None of them gives its GPUs sooner."""
        predictor, costs = self.forecast.predictor, self.forecast.running_index.costs
        return min([predictor.released_s(cost) for cost in costs], default=0.0)

    @cached_property
    def beside_idle(self) -> tuple[list[JobView], Exclusions]:
        """``split`` for a newcomer that may be on any host."""
        idle = self.forecast.snapshot.idle
        return self._split(list(idle), [self.forecast.numbers[host.id] for host in idle])

    def split(self, hosts: list[HostView]) -> tuple[list[JobView], Exclusions]:
        """Those on the ones of ``hosts`` with idle GPUs; and whom to leave out for those on the
        full ones: all on others, and who is not asked at all."""
        numbers = self.forecast.numbers
        full = {numbers[host.id]: None for host in hosts if not host.idle}
        rest = [number for number in numbers.values() if number not in full]
        return self._split([host for host in hosts if host.idle], rest)

    def _split(self, idle: list[HostView], left_out: list[int]) -> tuple[list[JobView], Exclusions]:
        if not left_out:
            return [], self.excluded
        on_host = self.forecast.running_index.on_host
        here = [job for host in idle for job in self.on(host)]
        rest = [one for number in left_out for one in on_host[number].values()]
        return here, Exclusions([*self.excluded.running_index, *rest])

    def _make(self, job: JobView) -> Donor:
        forecast, predictor = self.forecast, self.forecast.predictor
        before = forecast.end_ms(job)
        then_s = predictor.reshaped_to_s(job, job.gpu_type)
        keeps = [
            (size, job.size - size, to_ms(then_s[size]), ((job.id, size),))
            for size in job.sizes
            if size < job.size
        ]
        others, release_s = forecast.latest_but((job.id,)), predictor.release_s(job)
        return Donor(job, before, self.least_ms(before), others, release_s, keeps)


@dataclass(slots=True)
class DonorSearch:
    """Which jobs a look at all of them has found."""

    near: list[JobView]
    """Those of which GPUs may be worth taking."""
    far: list[tuple[int, JobView]]
    """The others, if somebody will look at them; with what is lost with each at least."""
    ruled_out: int = 0
    """How many others there are."""


def find_donors(
    outlook: Outlook,
    newcomer: JobView,
    hosts: list[HostView],
    donors: Donors,
    base: tuple[int, int],
) -> DonorSearch:
    """At the jobs that may give GPUs to a newcomer, by what they can bring at best.

    An option that leaves the schedule of the queue as it is saves what it saves the newcomer, less
    what the giver loses. Whether it does that is not looked at here on hosts with idle GPUs, and
    where more is given than the newcomer takes: those jobs are all near.
    """
    found, forecast, queue = DonorSearch([], []), outlook.forecast, outlook.if_started
    if not forecast.running_index.classes:
        return found
    anywhere = len(hosts) == len(forecast.numbers)
    here, excluded = donors.beside_idle if anywhere else donors.split(hosts)
    found.near += here
    shorter = base[0] - max(queue.last_ms, forecast.latest[0][0])
    waits = base[1] - forecast.ends_sum_ms - queue.sum_ms
    gains, rules = _Gains(outlook, newcomer, donors.release_s, waits, shorter), donors.rules
    for job_class, first in donors.first:
        if job_class.gifts[0] < newcomer.sizes[0]:
            continue
        gain = gains.of(job_class.gift)
        if gain is None:
            found.near += job_class.all(excluded)
            continue
        close = job_class.near(gain, rules, excluded) if first.are_met(gain) else []
        found.near += close
        found.ruled_out += job_class.count(excluded) - len(close)
        if forecast.snapshot.explain:
            found.far += job_class.far(gain, rules, excluded)
    return found


class _Gains:
    """What GPUs of running jobs can bring to a newcomer."""

    def __init__(
        self, outlook: Outlook, newcomer: JobView, release_s: float, waits: int, shorter: int
    ) -> None:
        """``waits``: the completion time of a newcomer that waits, with what that costs others;
        ``shorter``: by how much all would end sooner at best."""
        self._outlook, self._newcomer = outlook, newcomer
        self._release_s, self._waits, self._shorter = release_s, waits, shorter
        self._known: dict[tuple[int, tuple[int, ...]], Gain | None] = {}
        types = outlook.forecast.types
        self._late_ms = outlook.reach.late_ms if outlook.others else [-1] * len(types)

    def of(self, gift: tuple[int, tuple[int, ...]]) -> Gain | None:
        """Of so many GPUs of a type as can be given; None: that is not said here."""
        known = self._known
        if gift not in known:
            known[gift] = self._of(*gift)
        return known[gift]

    def _of(self, kind: int, gifts: tuple[int, ...]) -> Gain | None:
        job, alone, late = self._newcomer, not self._outlook.others, self._late_ms[kind]
        sizes = [size for size in job.sizes if size in gifts]
        if alone and not sizes:
            sizes = [size for size in job.sizes if size <= gifts[0]]
        if not sizes:
            return None
        forecast = self._outlook.forecast
        name, predictor = forecast.types[kind], forecast.predictor
        end_s = min([predictor.incoming_s(job, name, size) for size in sizes]) + self._release_s
        end = to_ms(end_s) - SLACK_MS
        return None if end <= late else Gain(self._waits - end, late, self._shorter)
