"""DRAGON: arrival order without blocking, with sizes that follow the load.

Does: starts the first queued job that fits, at its smallest size. A job that has waited for
``down_after_s`` is urgent: running jobs shrink for it. If no job started and none was reshaped for
``up_after_s``, running jobs grow. No length needs to be known.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from reshape_controller.core.phrases import gpus
from reshape_controller.core.plan import JobView, Plan, Snapshot, Target
from reshape_controller.core.preemption import start_of
from reshape_controller.scheduling import gang_start, legal_moves, scaling
from reshape_controller.scheduling.only_option import only_option

DOWN_AFTER_S = 300.0
"""Wait after which a job is urgent, unless its record has a ``max_wait_s``."""
UP_AFTER_S = 60.0
"""Time without a start or a reshape after which running jobs grow."""


class Dragon:
    """The policy. Its name shows the settings that are not the defaults."""

    def __init__(
        self, down_after_s: float | str = DOWN_AFTER_S, up_after_s: float | str = UP_AFTER_S
    ) -> None:
        """Both in seconds, or the text of a number; ``down_after_s=inf``: no job is urgent;
        ``up_after_s=inf``: none grows. Raises ValueError."""
        self._down_after_s, self._up_after_s = float(down_after_s), float(up_after_s)
        for name, value in (("down_after_s", down_after_s), ("up_after_s", up_after_s)):
            if not float(value) >= 0.0:
                raise ValueError(f"{name} is {value}, and must be 0 or more")
        settings = [
            f"{name}={value:.12g}"
            for name, value, usual in (
                ("down_after_s", self._down_after_s, DOWN_AFTER_S),
                ("up_after_s", self._up_after_s, UP_AFTER_S),
            )
            if value != usual
        ]
        self.name = "dragon" + (":" if settings else "") + ",".join(settings)

    def start_size(self, job: JobView) -> int:
        """Return the size at which a queued job starts."""
        return job.sizes[0]

    def may_act(self, *, queued: bool, idle: bool) -> bool:
        """Return whether a plan may change anything: a start, or growth onto idle GPUs."""
        return queued or idle

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return the next single decision."""
        queue = sorted(legal_moves.startable(snapshot), key=lambda job: job.place)
        queue = [job for job in queue if scaling.can_hold(snapshot, job, self.start_size(job))]
        urgent = [job for job in queue if self._urgent_at_s(job) <= snapshot.now_s]
        later_s = [at_s for at_s in map(self._urgent_at_s, queue) if snapshot.now_s < at_s < inf]
        if urgent:
            later_s += scaling.refused_until_s(snapshot)
            return self._start_urgent(snapshot, urgent[0], min(later_s, default=None))
        for newcomer in queue:
            size = self.start_size(newcomer)
            targets = gang_start.start_on_idle(snapshot, newcomer, size)
            if targets:
                text = f"{newcomer.spec.name} is the first that fits and starts on {gpus(size)}"
                return only_option(targets, "starts-first-fit", text, newcomer.id)
        return self._grow(snapshot, queue, min(later_s, default=None))

    def _urgent_at_s(self, job: JobView) -> float:
        own_s = job.spec.max_wait_s
        return job.waits_since_s + (self._down_after_s if own_s is None else own_s)

    def _start_urgent(self, snapshot: Snapshot, job: JobView, wake_at_s: float | None) -> Plan:
        """Return the plan that starts an urgent job, by shrinks if it does not fit; without one,
        nothing else starts or grows."""
        size, name = self.start_size(job), job.spec.name
        targets = gang_start.start_on_idle(snapshot, job, size)
        if targets:
            return only_option(targets, "starts-urgent", f"{name} starts on {gpus(size)}", job.id)
        targets = scaling.scale_down(snapshot, job, size, scaling.donors_in_order(snapshot))
        if targets:
            text = f"{name} has waited too long and starts on {gpus(size)} that others give"
            return only_option(targets, "shrinks-for-urgent", text, job.id)
        text = f"{name} is urgent, and no shrinks would free {gpus(size)} of a host"
        return Plan((), "waits-nothing-fits", text, job.id, wake_at_s=wake_at_s)

    def _grow(self, snapshot: Snapshot, queue: list[JobView], wake_at_s: float | None) -> Plan:
        """Return the growth of running jobs once it is time, or the plan to wait."""
        targets = scaling.scale_up(snapshot)
        if targets:
            up_at_s = self._up_after_s + max(_changed_at_s(job) for job in snapshot.running)
            if up_at_s <= snapshot.now_s:
                return grows(snapshot, targets)
            if up_at_s < inf:
                wake_at_s = up_at_s if wake_at_s is None else min(wake_at_s, up_at_s)
        return waits(queue, self.start_size, wake_at_s)


def grows(snapshot: Snapshot, targets: tuple[Target, ...]) -> Plan:
    """Return the plan by which running jobs grow onto idle GPUs."""
    jobs = {job.id: job for job in snapshot.running}
    sizes = [f"{jobs[each.job].spec.name} to {gpus(each.size)}" for each in targets]
    text = f"no job can start; {', '.join(sizes)}"
    return only_option(targets, "grows", text, targets[0].job)


def waits(
    queue: list[JobView], start_size: Callable[[JobView], int], wake_at_s: float | None
) -> Plan:
    """Return the empty plan for a queue of which no job fits."""
    if not queue:
        return Plan(wake_at_s=wake_at_s)
    text = f"{queue[0].spec.name} waits for {gpus(start_size(queue[0]))}"
    return Plan((), "waits-nothing-fits", text, queue[0].id, wake_at_s=wake_at_s)


def _changed_at_s(job: JobView) -> float:
    """Return when a running job started or was reshaped last."""
    return start_of(job) if job.reshaped_at_s is None else max(start_of(job), job.reshaped_at_s)
