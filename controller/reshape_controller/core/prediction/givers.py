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
from reshape_controller.core.prediction import bounds
from reshape_controller.core.prediction.bounds import Alike
from reshape_controller.core.prediction.forecast import Forecast, Outlook
from reshape_controller.core.prediction.predictor import end_ms, seen, to_ms


@dataclass(frozen=True, slots=True)
class Giver:
    """A running job that may give GPUs: what of its options no newcomer changes."""

    job: JobView
    before_ms: int
    """When it ends as it is."""
    least_ms: int
    """What its reshape has to save."""
    others_ms: int
    """When the last of the others ends."""
    release_s: float
    keeps: tuple[tuple[int, int, int, tuple[tuple[JobId, int]]], ...]
    """Smaller sizes: the size, what it takes from the job, when the job ends then, and the two as
    an option has them."""


class Givers:
    """The running jobs that may give GPUs. What it takes to weigh one is made when one is."""

    def __init__(
        self,
        forecast: Forecast,
        donors: dict[HostId, list[JobView]],
        least_ms: Callable[[int], int],
    ) -> None:
        """``least_ms`` gives what has to be saved, from what the victim has left."""
        self.donors = {host: jobs for host, jobs in donors.items() if jobs}
        self._forecast, self._least_ms = forecast, least_ms
        self._made: dict[JobId, Giver] = {}

    def of(self, job: JobView) -> Giver:
        """All about one."""
        giver = self._made.get(job.id)
        if giver is None:
            giver = self._made[job.id] = self._make(job)
        return giver

    @cached_property
    def alike(self) -> list[Alike]:
        """What each loses at least, and those that are alike."""
        donors, hosts = self.donors, self._forecast.snapshot.hosts
        placed = [(host, donors[host.id]) for host in hosts if host.id in donors]
        return bounds.losses(self._forecast, placed, self._least_ms)

    @cached_property
    def release_s(self) -> float:
        """None of them gives its GPUs sooner."""
        predictor = self._forecast.predictor
        kinds = {job.spec.job_type: job for jobs in self.donors.values() for job in jobs}
        return min((predictor.release_s(job) for job in kinds.values()), default=0.0)

    def _make(self, job: JobView) -> Giver:
        forecast, predictor = self._forecast, self._forecast.predictor
        before = end_ms(job)
        then_s = predictor.reshaped_to_s(job, job.gpu_type)
        keeps = tuple(
            (size, job.size - size, to_ms(then_s[size]), ((job.id, size),))
            for size in job.sizes
            if size < job.size
        )
        others, release_s = forecast.latest_but((job.id,)), predictor.release_s(job)
        return Giver(job, before, self._least_ms(before), others, release_s, keeps)


def near_and_far(
    outlook: Outlook,
    newcomer: JobView,
    here: dict[HostId, HostView],
    givers: Givers,
    base: tuple[int, int],
) -> tuple[list[JobView], int, list[tuple[int, JobView]]]:
    """The jobs of which GPUs may be worth taking for a newcomer; how many others there are; and, if
    somebody will look at them, these, each with what is lost with it at least.

    An option that leaves the schedule of the queue as it is saves what it saves the newcomer, less
    what the giver loses. Whether it does that is not looked at here on hosts with idle GPUs, and
    where more is given than the newcomer takes: those jobs are all near.
    """
    near: list[JobView] = []
    far: list[tuple[int, JobView]] = []
    ruled_out = 0
    if not givers.donors:
        return near, ruled_out, far
    forecast, queue, alone = outlook.forecast, outlook.if_started, not outlook.others
    explained, all_hosts = forecast.snapshot.explained, len(here) == len(forecast.numbers)
    late_ms = dict.fromkeys(forecast.types, -1)
    if not alone:
        late_ms = dict(zip(forecast.types, outlook.reach.late_ms, strict=True))
    waits = base[1] - forecast.ends_sum_ms - queue.sum_ms
    shorter = base[0] - max(queue.last_ms, forecast.latest[0][0])
    for alike in givers.alike:
        late, gifts = late_ms[alike.kind], alike.gifts
        if not alike.idle and gifts[0] < newcomer.sizes[0]:
            continue
        sizes = [size for size in newcomer.sizes if size in gifts]
        if alone and not sizes:
            sizes = [size for size in newcomer.sizes if size <= gifts[0]]
        seconds = [forecast.predictor.incoming_s(newcomer, alike.kind, size) for size in sizes]
        end = to_ms(min(seconds, default=0.0) + givers.release_s) - bounds.SLACK_MS
        if alike.idle or not sizes or end <= late:
            near += _on(alike.jobs, here, all_hosts)
            continue
        saves = waits - end
        close = _on(alike.near(saves, late, shorter), here, all_hosts)
        near += close
        found = _on(alike.jobs, here, all_hosts)
        ruled_out += len(found) - len(close)
        if explained:
            others = [job for job in found if not bounds.is_near(job, saves, late, shorter)]
            far += [(seen(job).needs_ms, job) for job in others]
    return near, ruled_out, far


def _on(jobs: list[JobView], here: dict[HostId, HostView], all_hosts: bool) -> list[JobView]:
    """Those of ``jobs`` that are on one of the hosts."""
    return jobs if all_hosts else [job for job in jobs if job.host in here]
