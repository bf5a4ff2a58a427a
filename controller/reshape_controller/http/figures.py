"""Counters and histograms that are rebuilt from the log.

Does: takes each record with its history, and counts. The same log gives the same figures, so they
go on after a restart of the controller where they were. State: a Prometheus registry.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import prometheus_client as prometheus

from reshape_controller.core.model import Job, JobId
from reshape_controller.core.proofs import ENTRIES
from reshape_controller.core.record import HistoryEntry, LogRecord, PhaseCost
from reshape_controller.core.starts import counted
from reshape_controller.core.state import State
from reshape_controller.core.states import Mechanism
from reshape_sidecar.wire import StartKind

RESHAPE_BUCKETS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300)
LONG_BUCKETS_S = (1, 5, 15, 60, 300, 900, 3600, 14400, 43200, 86400, 259200, 604800)
"""Of waits in the queue and of whole jobs: a second to a week."""
RATIO_BUCKETS = (0.25, 0.5, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0)
REASONS_MAX = 50
"""Number of reasons of decisions that have a label of their own; a policy may make up more."""
OTHER = "other"
"""Label of what has no label of its own."""
WHOLE = "whole reshape"
"""Phase of a cost that is the sum of the others."""

_ASKED = {"shrink-asked": "down", "grow-asked": "up", "relaunch-asked": "same"}
"""Direction of a request by the kind of its entry; of a relaunch, its change says more."""
_CUT_SHORT = {
    "refused": "refused",
    "start-failed": "failed",
    "failure": "failed",
    "failed": "failed",
    "host-lost": "failed",
    "leave-asked": "left",
    "completed": "left",
    "cancelled": "left",
}
"""Outcome of a reshape by the kind of the entry that ends it before its first step."""
_ENDS = ("completed", "failed", "cancelled")
_COUNTERS = (
    ("submitted", "reshape_jobs_submitted", "Jobs that were accepted"),
    ("preempted", "reshape_preemptions", "Preemptions of running jobs"),
    ("failure", "reshape_failures", "Failures of jobs that were counted"),
    ("gpu-quarantined", "reshape_quarantines", "GPUs that were quarantined"),
    ("unreachable", "reshape_sidecar_silences", "SideCars that fell silent"),
)
"""Kind of an entry, with name and text of the counter of such entries."""
_RESULTS = {kind: result.value for result, kind in ENTRIES.items()}
"""Result of a proof by the kind of its entry."""


def counter(
    registry: prometheus.CollectorRegistry, name: str, text: str, *labels: str
) -> prometheus.Counter:
    """Register a counter and return it."""
    return prometheus.Counter(name, text, labels, registry=registry)


def histogram(
    registry: prometheus.CollectorRegistry,
    buckets: tuple[float, ...],
    name: str,
    text: str,
    *labels: str,
) -> prometheus.Histogram:
    """Register a histogram and return it."""
    return prometheus.Histogram(name, text, labels, registry=registry, buckets=buckets)


def gauge(
    registry: prometheus.CollectorRegistry, name: str, text: str, *labels: str
) -> prometheus.Gauge:
    """Register a gauge and return it."""
    return prometheus.Gauge(name, text, labels, registry=registry)


class Reasons:
    """The labels of reasons; their number is bounded."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def label(self, reason: str) -> str:
        """Return the reason itself, or ``OTHER`` if there are too many."""
        if reason not in self._known and len(self._known) >= REASONS_MAX:
            return OTHER
        self._known.add(reason)
        return reason


@dataclass(slots=True)
class _Reshape:
    """A reshape from its request on."""

    direction: str
    mechanism: str
    asked_at_s: float
    is_withdrawn: bool = False


class LogFigures:
    """Figures of one log, up to the newest record that was taken."""

    def __init__(self) -> None:
        self.registry = registry = prometheus.CollectorRegistry()
        by = ("direction", "mechanism")
        self._reshapes = counter(
            registry,
            "reshape_reshapes",
            "Reshapes of running jobs that have an outcome",
            *(*by, "outcome"),
        )
        self._reshape_s = histogram(
            registry,
            RESHAPE_BUCKETS_S,
            "reshape_reshape_seconds",
            "Time from the request for a reshape to its outcome; if done, to the first step",
            *(*by, "outcome"),
        )
        self._phase_s = histogram(
            registry,
            RESHAPE_BUCKETS_S,
            "reshape_reshape_phase_seconds",
            "Time of each phase of a reshape",
            *(*by, "phase"),
        )
        text = "Measured time of a phase of a start or reshape, divided by its prediction"
        self._ratio = histogram(registry, RATIO_BUCKETS, "reshape_prediction_ratio", text, "phase")
        text = "Time from a job's submission to its first GPUs"
        self._wait_s = histogram(registry, LONG_BUCKETS_S, "reshape_queue_wait_seconds", text)
        text = "Time from a job's submission to its end"
        self._completion_s = histogram(
            registry, LONG_BUCKETS_S, "reshape_job_completion_seconds", text, "state"
        )
        text = "Plans that change jobs"
        self._decisions = counter(registry, "reshape_decisions", text, "reason")
        text = "Starts of training processes; fallback: the settings allow a faster one"
        self._starts = counter(registry, "reshape_starts", text, "how", "fallback")
        self._counters = {kind: counter(registry, name, text) for kind, name, text in _COUNTERS}
        """Counters of entries of one kind."""
        text = "Restarts whose first step was to be compared with that of the process before"
        self._proofs = counter(registry, "reshape_proofs", text, "result")
        text = "Training steps that were executed again or not saved"
        self._lost = counter(registry, "reshape_steps_lost", text)
        self._show_zeros()
        self._reasons = Reasons()
        self._open: dict[JobId, _Reshape] = {}
        self._lost_by: dict[JobId, int] = {}
        """Lost steps of each unfinished job that lost some."""

    def _show_zeros(self) -> None:
        """Show what has not happened yet as 0. Prometheus sees no increase in a series that begins
        with 1."""
        for state in _ENDS:
            self._completion_s.labels(state)
        for result in ENTRIES:
            self._proofs.labels(result.value)
        for how in StartKind:
            self._starts.labels(how.value, "false")
        for direction, mechanism in product(
            ("up", "down"), (Mechanism.SIDECAR, Mechanism.TERMINATE)
        ):
            self._reshape_s.labels(direction, mechanism.value, "done")
            for outcome in {"done", "withdrawn", *_CUT_SHORT.values()}:
                self._reshapes.labels(direction, mechanism.value, outcome)

    @property
    def under_way(self) -> frozenset[JobId]:
        """The jobs with a reshape that has no outcome yet."""
        return frozenset(self._open)

    def begin(self, state: State) -> None:
        """Begin with a snapshot's state: what its jobs lost before is not counted."""
        self._lost_by = {job.id: job.steps_lost for job in state.jobs.values() if job.steps_lost}

    def take(self, state: State, record: LogRecord, history: Iterable[HistoryEntry]) -> None:
        """Count one record. ``state``: after it, with the jobs that ended in it."""
        entries = tuple(history)
        closed: dict[JobId, _Reshape] = {}
        for entry in entries:
            if entry.kind in self._counters:
                self._counters[entry.kind].inc()
            if entry.kind in _RESULTS:
                self._proofs.labels(_RESULTS[entry.kind]).inc()
            if entry.job is not None:
                job = state.jobs.get(entry.job) or state.ended.get(entry.job)
                self._take_entry(entry, entry.job, job, closed)
        for entry in entries:
            self._take_costs(entry, closed)
        for key in {entry.job: None for entry in entries if entry.job is not None}:
            job = state.jobs.get(key) or state.ended.get(key)
            if job is not None:
                self._take_lost(key, job, key not in state.jobs)
        for start in counted(entries):
            self._starts.labels(start.how.value, "true" if start.fell_back else "false").inc()
        for plan in record.plans:
            if plan.targets:
                self._decisions.labels(self._reasons.label(plan.reason_code)).inc()

    def _take_entry(
        self, entry: HistoryEntry, key: JobId, job: Job | None, closed: dict[JobId, _Reshape]
    ) -> None:
        kind = entry.kind
        if kind in _ASKED:
            self._open[key] = _begun(entry, job)
        elif kind == "withdrawn" and key in self._open:
            self._open[key].is_withdrawn = True
        elif (kind == "first-step" or kind in _CUT_SHORT) and key in self._open:
            reshape = closed[key] = self._open.pop(key)
            self._close(reshape, _CUT_SHORT.get(kind, "done"), entry.at_s)
        if job is None:
            return
        if kind == "granted" and job.started_at_s == entry.at_s:
            self._wait_s.observe(entry.at_s - job.submitted_at_s)
        if kind in _ENDS and job.state.terminal:
            self._completion_s.labels(job.state.value).observe(entry.at_s - job.submitted_at_s)

    def _take_lost(self, key: JobId, job: Job, is_gone: bool) -> None:
        if job.steps_lost:
            self._lost.inc(job.steps_lost - self._lost_by.get(key, 0))
            self._lost_by[key] = job.steps_lost
        if is_gone:
            self._lost_by.pop(key, None)
            self._open.pop(key, None)

    def _close(self, reshape: _Reshape, outcome: str, at_s: float) -> None:
        if reshape.is_withdrawn and outcome in ("refused", "done"):
            outcome = "withdrawn"
        labels = (reshape.direction, reshape.mechanism, outcome)
        self._reshapes.labels(*labels).inc()
        self._reshape_s.labels(*labels).observe(at_s - reshape.asked_at_s)

    def _take_costs(self, entry: HistoryEntry, closed: dict[JobId, _Reshape]) -> None:
        if not entry.costs or entry.job is None:
            return
        reshape = closed.get(entry.job) or self._open.get(entry.job)
        for cost in entry.costs:
            ratio = _ratio(cost)
            if ratio is not None:
                self._ratio.labels(cost.phase).observe(ratio)
            if reshape is not None and cost.phase != WHOLE:
                labels = (reshape.direction, reshape.mechanism, cost.phase)
                self._phase_s.labels(*labels).observe(cost.measured_s)


def _begun(entry: HistoryEntry, job: Job | None) -> _Reshape:
    direction = _ASKED[entry.kind]
    relaunches = entry.kind == "relaunch-asked"
    change = job.change if job is not None else None
    if change is not None and relaunches and len(change.gpus_after) != change.size_before:
        direction = "up" if len(change.gpus_after) > change.size_before else "down"
    mechanism = Mechanism.TERMINATE if relaunches else Mechanism.SIDECAR
    return _Reshape(direction, mechanism.value, entry.at_s)


def _ratio(cost: PhaseCost) -> float | None:
    """Return measured over predicted; None if nothing was predicted."""
    return cost.measured_s / cost.predicted_s if cost.predicted_s else None
