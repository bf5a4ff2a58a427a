"""The ways to start a queued job at the cost of running jobs of lower priority; of an overdue one
also at the cost of jobs of its own.

Does: finds shrinks of such jobs that are enough; if there are none, the jobs to preempt. A start of
this kind need not save any time: priorities and waits decide. Nothing is predicted here but which
job ends last, and how long a queued job needs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf

from reshape_controller.core.limits import EQUAL_PREEMPTION_EVERY_S, EQUAL_RUNTIME_MIN_S
from reshape_controller.core.phrases import duration, gpus
from reshape_controller.core.plan import HostView, JobView, Snapshot, Target
from reshape_controller.core.preemption import start_of
from reshape_controller.scheduling import legal_moves, shrinks
from reshape_controller.scheduling.donors import Donors
from reshape_controller.scheduling.forecast import Forecast
from reshape_controller.scheduling.preemption_reason import (
    ROUNDING_S,
    best_time_s,
    overdue_wait_s,
)


@dataclass(frozen=True, slots=True)
class OutrankingStart:
    """A start for which jobs of lower priority shrink or are preempted (size 0)."""

    size: int
    host: HostView
    donors: tuple[tuple[JobView, int], ...]
    """The donors, and the size that each keeps."""

    @property
    def preempts(self) -> bool:
        """Whether a donor is preempted."""
        return any(keeps == 0 for _, keeps in self.donors)

    @property
    def freed(self) -> int:
        """The number of GPUs that the donors give."""
        return sum(donor.size - keeps for donor, keeps in self.donors)

    def targets(self, newcomer: JobView) -> tuple[Target, ...]:
        """Return the targets of a plan that takes it."""
        shrinks = ((donor.id, keeps) for donor, keeps in self.donors)
        return legal_moves.start(newcomer, self.size, self.host.id, *shrinks)


def outranks(snapshot: Snapshot, newcomer: JobView) -> bool:
    """Whether any running job has a lower priority than a queued one."""
    running = snapshot.running  # in queue order, so the last has the lowest priority
    return bool(running) and running[-1].spec.priority < newcomer.spec.priority


def shrink_start(
    forecast: Forecast, newcomer: JobView, hosts: Iterable[HostView], donors: Donors
) -> OutrankingStart | None:
    """Return the start for which jobs of lower priority shrink and fewest GPUs change hands; None
    if shrinks are not enough on any of ``hosts``."""
    found = []
    for host in hosts:
        lower = _lower(newcomer, donors.by_host.get(host.id, []))
        lower.sort(key=lambda job: (job.spec.priority, -forecast.end_ms(job), job.id))
        found += _start(newcomer, host, lower, shrinks.kept_size)
    return min(found, key=_preference, default=None)


def preempting_start(
    snapshot: Snapshot, newcomer: JobView, hosts: Iterable[HostView]
) -> tuple[OutrankingStart | None, float]:
    """Return the start that preempts jobs of lower priority and takes fewest GPUs from them, the
    newest starts first, and the time at which a further job has run for long enough to be
    preempted (infinite if there is none)."""
    by_host, again_s = _preemptible(snapshot, _lower(newcomer, snapshot.running), by_equal=False)
    return _start_that_preempts(newcomer, hosts, by_host, _has_run_at_s), again_s


def equal_start(
    forecast: Forecast, newcomer: JobView, hosts: Iterable[HostView]
) -> tuple[OutrankingStart | None, float]:
    """Return the start of an overdue job that preempts jobs of at most its priority and takes
    fewest GPUs from them, those first that end last, and the time at which to look again (infinite
    if there is none)."""
    snapshot, priority = forecast.snapshot, newcomer.spec.priority
    best_s = best_time_s(snapshot, forecast.predictor, newcomer)
    due_s = newcomer.waits_since_s + overdue_wait_s(newcomer, best_s) + ROUNDING_S
    if due_s > snapshot.now_s:
        return None, due_s
    equals = [job for job in snapshot.running if job.spec.priority <= priority]
    by_host, again_s = _preemptible(snapshot, equals, by_equal=True)
    return _start_that_preempts(newcomer, hosts, by_host, forecast.end_ms), again_s


def preemptible_at_s(job: JobView, *, by_equal: bool) -> float:
    """Return from when on a running job may be preempted: it has run for its ``min_runtime_s``. By
    a job of equal priority, it also has run for so long as the engine asks, and was not preempted
    lately."""
    at_s = max(_has_run_at_s(job), job.no_shrink_before_s)
    if by_equal:
        at_s = max(at_s, start_of(job) + EQUAL_RUNTIME_MIN_S)
        if job.preempted_at_s is not None:
            at_s = max(at_s, job.preempted_at_s + EQUAL_PREEMPTION_EVERY_S)
    return at_s


def _has_run_at_s(job: JobView) -> float:
    return start_of(job) + job.spec.min_runtime_s


def _preemptible(
    snapshot: Snapshot, jobs: Iterable[JobView], *, by_equal: bool
) -> tuple[dict[str, list[JobView]], float]:
    """Return those of ``jobs`` that may be preempted now, by host, and when a further one may be
    (infinite if there is none)."""
    by_host: dict[str, list[JobView]] = {}
    again_s = inf
    for job in jobs:
        if job.fixed_because or job.loses or job.host is None or job.shares:
            continue
        at_s = preemptible_at_s(job, by_equal=by_equal)
        if at_s > snapshot.now_s:
            again_s = min(again_s, at_s)
        elif job.frozen or not job.trains:  # nothing tells when it will train
            again_s = min(again_s, snapshot.now_s + job.spec.min_runtime_s)
        else:
            by_host.setdefault(job.host, []).append(job)
    return by_host, again_s


def _lower(newcomer: JobView, jobs: Iterable[JobView]) -> list[JobView]:
    priority = newcomer.spec.priority
    return [job for job in jobs if job.spec.priority < priority]


def _start(
    newcomer: JobView, host: HostView, jobs: list[JobView], keeps: Callable[[JobView, int], int]
) -> list[OutrankingStart]:
    """Return the start that takes GPUs from the first of ``jobs``; none if they are not enough.

    It has the largest size that its donors and the idle GPUs allow, and each donor gives a GPU that
    the newcomer takes. ``keeps``: the size of a donor after it, given the missing GPUs.
    """
    donors = shrinks.enough(host, newcomer.sizes[0], jobs, keeps)
    if not donors:
        return []
    count = host.idle + sum(job.size - kept for job, kept in donors)
    size = max(size for size in newcomer.sizes if size <= count)
    return [OutrankingStart(size, host, tuple(donors))]


def _start_that_preempts(
    newcomer: JobView,
    hosts: Iterable[HostView],
    by_host: Mapping[str, list[JobView]],
    at: Callable[[JobView], float],
) -> OutrankingStart | None:
    """Return the start that preempts fewest GPUs, on each host those jobs first of which ``at`` is
    latest. Where shrinks would do there is none: the newcomer starts after their cool-down."""
    found: list[OutrankingStart] = []
    for host in hosts:
        jobs = sorted(
            by_host.get(host.id, ()), key=lambda job: (job.spec.priority, -at(job), job.id)
        )
        starts = _start(newcomer, host, jobs, lambda job, missing: 0)
        found += [start for start in starts if not _shrinks_would_do(newcomer, start)]
    return min(found, key=_preference, default=None)


def _shrinks_would_do(newcomer: JobView, start: OutrankingStart) -> bool:
    """Whether the donors of a start could shrink and train on instead."""
    gives = sum(max(0, job.size - min(job.sizes, default=job.size)) for job, _ in start.donors)
    return start.host.idle + gives >= newcomer.sizes[0]


def _preference(start: OutrankingStart) -> tuple[int, int, str]:
    return start.freed, len(start.donors), start.host.id


def text(newcomer: JobView, start: OutrankingStart) -> str:
    """Return what the start does, and for which priorities."""
    what = f"{newcomer.spec.name} starts on {gpus(start.size)} of {start.host.id}"
    for donor, keeps in start.donors:
        name, priority = donor.spec.name, donor.spec.priority
        does = f"goes from {donor.size} to {keeps}" if keeps else "is preempted"
        what += f"; {name} {does} (priority {priority}, below {newcomer.spec.priority})"
    return what + "."


def equal_text(newcomer: JobView, start: OutrankingStart, now_s: float) -> str:
    """Return what the start of an overdue job does, and why."""
    what = f"{newcomer.spec.name} starts on {gpus(start.size)} of {start.host.id}"
    preempted = ", ".join(donor.spec.name for donor, _ in start.donors)
    wait = duration(now_s - newcomer.waits_since_s)
    return f"{what}; it is overdue (waited {wait}), and preempts {preempted}."
