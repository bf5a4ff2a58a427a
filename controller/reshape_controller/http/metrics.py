"""Prometheus figures of the daemon (docs/metrics.md), in a registry of their own.

Does: counts requests, decisions and appends of this process; reads jobs and GPUs at each scrape;
adds the figures that are rebuilt from the log. No label grows without a bound: jobs and users
appear in ``reshape_gpu_info`` alone, at most one for each GPU.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
from collections import Counter as Count
from collections.abc import Iterator
from dataclasses import dataclass

import prometheus_client as prometheus
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from reshape_controller.core.model import Gpu, GpuState, HostId, Job, JobState
from reshape_controller.http.figures import Reasons, counter, gauge, histogram
from reshape_controller.http.openapi import version
from reshape_controller.http.timeline import Totals
from reshape_controller.http.usage import Use
from reshape_controller.live.notifications.delivery import Outcome
from reshape_controller.store.protocol import Store, StoreError

_LATENCY_BUCKETS_S = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 30.0, 60.0)
_STEP_BUCKETS_S = (0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Of decisions and appends."""
_METHODS = frozenset({"GET", "POST", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"})
_INFO_LABELS = ("UUID", "host", "index", "gpu_type", "job_id", "job_name", "user")
NO_ROUTE = "none"
"""Label of a path that is no route."""

# The time at which a rebuilt counter began says nothing.
prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class Present:
    """The daemon's state at a scrape."""

    ready: bool
    lease_held: bool
    now_s: float
    unreachable: int
    """Jobs whose SideCars are silent."""
    late: int
    """Jobs that do something for too long (``Job.late``)."""
    store_lag_s: float
    since_snapshot: int
    """Records of the log that a start would read."""
    policy_fails: bool
    holders: tuple[tuple[Gpu, str, Job | None], ...] | None
    """Each GPU, its type and its job; None: the reader may not see the names of jobs."""
    totals: Totals | None
    """Sums over the log; None until it was read once."""


class _Families(Collector):
    """The families that a scrape computes."""

    def __init__(self) -> None:
        self.families: list[Metric] = []

    def collect(self) -> Iterator[Metric]:
        yield from self.families


class Metrics:
    """One per daemon."""

    content_type = prometheus.CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = registry = prometheus.CollectorRegistry()
        labels = ("handler", "method", "route")
        text = "Requests answered"
        self._requests = counter(registry, "reshape_http_requests", text, *labels, "status")
        text = "Time to an answer; long polls, followed logs and event streams wait on purpose"
        self._latency = histogram(
            registry, _LATENCY_BUCKETS_S, "reshape_http_request_seconds", text, *labels
        )
        text = "Time that the policy took for a decision, by the reason of its plan"
        self._decision_s = histogram(
            registry, _STEP_BUCKETS_S, "reshape_decision_seconds", text, "reason"
        )
        text = "Time until the store had a record of the log"
        self._append_s = histogram(registry, _STEP_BUCKETS_S, "reshape_store_append_seconds", text)
        text = "Tries to send a notification; failed: it is sent again, refused: it is not"
        self._notified = counter(registry, "reshape_notifications", text, "outcome")
        for outcome in Outcome:
            self._notified.labels(outcome.value)
        self._jobs = gauge(registry, "reshape_jobs", "Jobs by state", "state")
        self._gpus = gauge(registry, "reshape_gpus", "GPUs by host and state", "host", "state")
        self._seq = gauge(registry, "reshape_log_seq", "Number of the newest log record")
        self._ready = gauge(registry, "reshape_ready", "1 while the daemon accepts requests")
        text = "1 while the store announces inserts; 0 while the daemon only polls"
        self._hints = gauge(registry, "reshape_store_hints", text)
        text = "1 while this controller holds the lease, or needs none"
        self._lease = gauge(registry, "reshape_lease_held", text)
        text = "Time for which the store has not taken the newest record or its rows"
        self._lag = gauge(registry, "reshape_store_lag_seconds", text)
        text = "Records of the log since its newest snapshot, which a start would read"
        self._since_snapshot = gauge(registry, "reshape_records_since_snapshot", text)
        text = "1 while the policy fails, or its plans are rejected, so that no job starts"
        self._policy_fails = gauge(registry, "reshape_policy_fails", text)
        text = "Jobs whose SideCar does not report"
        self._unreachable = gauge(registry, "reshape_sidecars_unreachable", text)
        text = "Jobs without a first step for two hours, or without progress for too long"
        self._late = gauge(registry, "reshape_jobs_late", text)
        text = "Number of the newest log record that the figures from the log show; 0: none yet"
        self._figures_seq = gauge(registry, "reshape_figures_seq", text)
        build = gauge(registry, "reshape_build_info", "1, with the versions", "version", "python")
        build.labels(version(), platform.python_version()).set(1)
        self._families = _Families()
        registry.register(self._families)
        prometheus.ProcessCollector(registry=registry)
        self._reasons = Reasons()
        self._gpu_s: dict[tuple[HostId, Use], float] = {}
        """GPU-seconds by host and use, as the last scrape showed them."""

    def request(
        self, handler: str, method: str | None, route: str, status: int, seconds: float
    ) -> None:
        """Count one answer. ``route``: the template of its path."""
        labels = handler, method if method in _METHODS else "other", route
        self._requests.labels(*labels, str(status)).inc()
        self._latency.labels(*labels).observe(seconds)

    def decided(self, reason: str, took_s: float) -> None:
        """Count one decision of the policy."""
        self._decision_s.labels(self._reasons.label(reason)).observe(took_s)

    def appended(self, took_s: float) -> None:
        """Count one append to the log."""
        self._append_s.observe(took_s)

    def notified(self, outcome: str) -> None:
        """Count one try to send a notification."""
        self._notified.labels(outcome).inc()

    async def text(self, store: Store, present: Present) -> bytes:
        """All figures in the text format; if the store does not answer, its last figures."""
        with contextlib.suppress(StoreError):
            await self._read(store)
        self._ready.set(1 if present.ready else 0)
        self._lease.set(1 if present.lease_held else 0)
        self._hints.set(1 if store.notices_requests else 0)
        self._lag.set(present.store_lag_s)
        self._since_snapshot.set(present.since_snapshot)
        self._policy_fails.set(1 if present.policy_fails else 0)
        self._unreachable.set(present.unreachable)
        self._late.set(present.late)
        self._figures_seq.set(present.totals.seq if present.totals is not None else 0)
        self._families.families = [
            *(_info(present.holders) if present.holders is not None else ()),
            *(self._gpu_seconds(present.totals, present.now_s) if present.totals else ()),
        ]
        text = prometheus.generate_latest(self._registry)
        if present.totals is not None:
            text += prometheus.generate_latest(present.totals.figures.registry)
        return text

    def _gpu_seconds(self, totals: Totals, now_s: float) -> Iterator[Metric]:
        # A record's time is the start of its round. A scrape before the end of its append has
        # gone on with the use before it, for longer than the record then allows.
        for key, gpu_s in totals.usage.of_hosts(now_s).items():
            self._gpu_s[key] = max(self._gpu_s.get(key, 0.0), gpu_s)
        text = "Time of all GPUs of a host, by what they did"
        family = CounterMetricFamily("reshape_gpu_seconds", text, labels=("host", "phase"))
        for (host, use), gpu_s in self._gpu_s.items():
            family.add_metric((host, use.value), gpu_s)
        yield family

    async def _read(self, store: Store) -> None:
        # At the same time: one after another they take longer than a scrape if the store is slow.
        pages = asyncio.gather(*(store.jobs(limit=1, states=(state,)) for state in JobState))
        job_pages, gpus, seq = await asyncio.gather(pages, store.gpus(), store.last_seq())
        for state, page in zip(JobState, job_pages, strict=True):
            self._jobs.labels(state.value).set(page.total)
        counts = Count((gpu.host, gpu.state) for gpu in gpus)
        for host in {gpu.host: None for gpu in gpus}:
            for gpu_state in GpuState:
                self._gpus.labels(host, gpu_state.value).set(counts[host, gpu_state])
        self._seq.set(seq)


def _info(holders: tuple[tuple[Gpu, str, Job | None], ...]) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "reshape_gpu_info", "1 for each GPU, with the job that holds it", labels=_INFO_LABELS
    )
    for gpu, gpu_type, job in holders:
        names = (job.id, job.spec.name, job.spec.user) if job is not None else ("", "", "")
        family.add_metric((gpu.id, gpu.host, str(gpu.index), gpu_type, *names), 1)
    yield family
