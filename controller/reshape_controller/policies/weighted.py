"""DRAGON with weights: jobs with more priority, then with a larger request, come first.

Does: if the first job of the queue outranks a running one that is above its smallest size, running
jobs shrink for it. Otherwise the first job that fits starts. Running jobs grow as soon as no job
can start. With ``admission=oasis`` a job also waits while its weight does not pay for its
GPU-seconds (``scheduling.prices``).
"""

from __future__ import annotations

from enum import StrEnum
from math import inf
from typing import TypeVar

from reshape_controller.core.phrases import gpus
from reshape_controller.core.plan import JobView, Plan, Snapshot
from reshape_controller.policies.dragon import grows, waits
from reshape_controller.scheduling import gang_start, legal_moves, scaling
from reshape_controller.scheduling.only_option import only_option
from reshape_controller.scheduling.predictor import Predictor
from reshape_controller.scheduling.prices import Prices

AGE_S = 3600.0
"""Wait that counts as much as one more of priority, with ``utility=aged``."""
COOL_DOWN = 5.0
"""A reshaped job is not shrunk again for so many times the reshape's cost, with ``utility=aged``.
"""


Each = TypeVar("Each", bound=StrEnum)


class Utility(StrEnum):
    AGED = "aged"
    """Waiting raises the rank, and a job that was reshaped cools down."""
    PRINTED = "printed"
    """As the paper prints it: the priority alone, and every running job may give."""


class Admission(StrEnum):
    ALL = "all"
    OASIS = "oasis"


class Weighted:
    """The policy. Its name shows the settings that are not the defaults."""

    def __init__(self, utility: str = Utility.AGED, admission: str = Admission.ALL) -> None:
        """``utility``: aged or printed; ``admission``: all or oasis. Raises ValueError."""
        self._utility = _choice(Utility, "utility", utility)
        self._admission = _choice(Admission, "admission", admission)
        settings = [f"utility={self._utility}"] if self._utility is not Utility.AGED else []
        if self._admission is not Admission.ALL:
            settings.append(f"admission={self._admission}")
        self.name = "weighted" + (":" if settings else "") + ",".join(settings)

    def start_size(self, job: JobView) -> int:
        """Return the size at which a queued job starts."""
        return job.sizes[0]

    def may_act(self, *, queued: bool, idle: bool) -> bool:
        """Return whether a plan may change anything: a start, or growth onto idle GPUs."""
        return queued or idle

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return the next single decision."""
        queue = [
            job
            for job in legal_moves.startable(snapshot)
            if scaling.can_hold(snapshot, job, self.start_size(job))
        ]
        queue.sort(key=lambda job: (-self._rank(snapshot, job), -self.start_size(job), job.place))
        prices = None
        if self._admission is Admission.OASIS and queue:
            sizes = {job.id: self.start_size(job) for job in queue}
            prices = Prices(snapshot, Predictor(snapshot), sizes)
        admitted = [job for job in queue if prices is None or self._admits(prices, snapshot, job)]
        wake_at_s = self._wake_at_s(snapshot, queue)
        plan = self._start(snapshot, admitted, wake_at_s)
        if plan is not None:
            return plan
        if prices is not None and len(admitted) < len(queue):
            dear = next(job for job in queue if job not in admitted)
            return Plan((), "waits-for-price", prices.text(dear), dear.id, wake_at_s=wake_at_s)
        targets = scaling.scale_up(snapshot)
        return grows(snapshot, targets) if targets else waits(queue, self.start_size, wake_at_s)

    def _admits(self, prices: Prices, snapshot: Snapshot, job: JobView) -> bool:
        """Whether the job's weight pays for its GPUs, or it has waited for its ``max_wait_s``."""
        return self._rank(snapshot, job) == inf or prices.admits(job)

    def _start(
        self, snapshot: Snapshot, queue: list[JobView], wake_at_s: float | None
    ) -> Plan | None:
        """Return the start of the first job, by shrinks if it is high, or of the first that fits;
        None if no job starts. While a high job waits, no other starts, and none grows."""
        if not queue:
            return None
        head, size = queue[0], self.start_size(queue[0])
        donors = self._donors(snapshot, head)
        is_high = any(self._outranks(snapshot, head, donor) for donor in donors)
        for newcomer in queue[:1] if is_high else queue:
            start_size = self.start_size(newcomer)
            targets = gang_start.start_on_idle(snapshot, newcomer, start_size)
            if targets:
                text = f"{newcomer.spec.name} starts on {gpus(start_size)}"
                return only_option(targets, "starts-by-weight", text, newcomer.id)
        if not is_high:
            return None
        targets = scaling.scale_down(snapshot, head, size, donors)
        if not targets:
            return waits(queue[:1], self.start_size, wake_at_s)
        text = f"{head.spec.name} outranks running jobs and starts on {gpus(size)} that they give"
        return only_option(targets, "shrinks-for-weight", text, head.id)

    def _rank(self, snapshot: Snapshot, job: JobView) -> float:
        """Return the priority; if waiting counts, with one more for each hour of it, and above all
        others after the record's ``max_wait_s``."""
        if self._utility is Utility.PRINTED:
            return job.spec.priority
        waited_s, most_s = snapshot.now_s - job.waits_since_s, job.spec.max_wait_s
        if most_s is not None and job.waits_since_s + most_s <= snapshot.now_s:
            return inf
        return job.spec.priority + waited_s // AGE_S

    def _outranks(self, snapshot: Snapshot, newcomer: JobView, donor: JobView) -> bool:
        return self._rank(snapshot, newcomer) > donor.spec.priority

    def _donors(self, snapshot: Snapshot, newcomer: JobView) -> list[JobView]:
        """Return the running jobs that may shrink for a queued one, in their order."""
        donors = scaling.donors_in_order(snapshot)
        if self._utility is Utility.PRINTED:
            return donors
        return [
            donor
            for donor in donors
            if self._outranks(snapshot, newcomer, donor) and cools_until_s(donor) <= snapshot.now_s
        ]

    def _wake_at_s(self, snapshot: Snapshot, queue: list[JobView]) -> float | None:
        """Return when a queued job reaches its next rank, or a donor may shrink again."""
        if not queue:
            return None
        now_s, times_s = snapshot.now_s, scaling.refused_until_s(snapshot)
        if self._utility is Utility.AGED:
            times_s += [self._next_rank_at_s(now_s, job) for job in queue]
            cool_s = map(cools_until_s, scaling.donors_in_order(snapshot))
            times_s += [at_s for at_s in cool_s if at_s > now_s]
        return min(times_s, default=None)

    def _next_rank_at_s(self, now_s: float, job: JobView) -> float:
        since_s, most_s = job.waits_since_s, job.spec.max_wait_s
        hour_s = since_s + AGE_S * ((now_s - since_s) // AGE_S + 1)
        if most_s is None or since_s + most_s <= now_s:
            return hour_s
        return min(hour_s, since_s + most_s)


def cools_until_s(job: JobView) -> float:
    """Return until when a job that was reshaped is not shrunk again."""
    if job.reshaped_at_s is None or job.reshape_cost_s is None:
        return 0.0
    return job.reshaped_at_s + COOL_DOWN * job.reshape_cost_s


def _choice(choices: type[Each], name: str, value: str) -> Each:
    if value not in tuple(choices):
        raise ValueError(f"{name} is {value!r}, and must be one of {', '.join(choices)}")
    return choices(value)
