"""Prometheus figures of the daemon, in a registry of their own.

Does: counts requests, and reads jobs and GPUs from the projections at each scrape. There is no
label by job or user, because their number has no bound.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter as Count
from collections.abc import Mapping

import prometheus_client as prometheus

from reshape_controller.core.model import GpuState, JobState
from reshape_controller.core.starts import StartCount
from reshape_controller.store.protocol import Store, StoreError

_LATENCY_BUCKETS_S = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 30.0, 60.0)


class Metrics:
    """One per daemon."""

    content_type = prometheus.CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = registry = prometheus.CollectorRegistry()
        self._requests = prometheus.Counter(
            "reshape_http_requests", "Requests answered", ["handler", "status"], registry=registry
        )
        self._latency = prometheus.Histogram(
            "reshape_http_request_seconds",
            "Time to an answer; includes the waits of SideCars' long polls",
            ["handler"],
            buckets=_LATENCY_BUCKETS_S,
            registry=registry,
        )
        self._jobs = prometheus.Gauge("reshape_jobs", "Jobs by state", ["state"], registry=registry)
        self._gpus = prometheus.Gauge(
            "reshape_gpus", "GPUs by host and state", ["host", "state"], registry=registry
        )
        self._seq = prometheus.Gauge(
            "reshape_log_seq", "Sequence number of the newest log record", registry=registry
        )
        self._ready = prometheus.Gauge(
            "reshape_ready", "1 while the daemon accepts requests", registry=registry
        )
        self._hints = prometheus.Gauge(
            "reshape_store_hints",
            "1 while the store announces inserts; 0 while the daemon only polls",
            registry=registry,
        )
        self._lease = prometheus.Gauge(
            "reshape_lease_held",
            "1 while this controller holds the lease, or needs none",
            registry=registry,
        )
        self._starts = prometheus.Counter(
            "reshape_starts",
            "Starts of training processes by kind; fallback: the settings allow a faster one",
            ["how", "fallback"],
            registry=registry,
        )
        self._counted: Count[StartCount] = Count()
        """Starts that ``_starts`` holds."""
        prometheus.ProcessCollector(registry=registry)

    def request(self, handler: str, status: int, seconds: float) -> None:
        """Count one answer."""
        self._requests.labels(handler, str(status)).inc()
        self._latency.labels(handler).observe(seconds)

    async def text(
        self, store: Store, ready: bool, lease_held: bool, starts: Mapping[StartCount, int]
    ) -> bytes:
        """All figures in the text format; if the store does not answer, its last figures.
        ``starts``: those since this controller began."""
        for kind, number in starts.items():
            fell_back = "true" if kind.fell_back else "false"
            self._starts.labels(kind.how.value, fell_back).inc(number - self._counted[kind])
        self._counted = Count(starts)
        self._ready.set(1 if ready else 0)
        self._lease.set(1 if lease_held else 0)
        self._hints.set(1 if store.notices_requests else 0)
        with contextlib.suppress(StoreError):
            await self._read(store)
        return prometheus.generate_latest(self._registry)

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
