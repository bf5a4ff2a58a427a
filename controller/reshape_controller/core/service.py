"""The attained service of jobs: GPU-seconds by GPU type and stage, exact.

Does: adds what a job has used of its GPUs to its account whenever its GPUs or its stage change.
Between two changes the account stands still; ``served_until`` adds the time since. Usage and
metrics read this account; no other code sums GPU time of live jobs.
"""

from __future__ import annotations

from collections.abc import Mapping

from reshape_controller.core.fast_replace import with_changes
from reshape_controller.core.model import Gpu, GpuId, Host, HostId, Job, Service


def settle(job: Job, now_s: float, gpus: Mapping[GpuId, Gpu], hosts: Mapping[HostId, Host]) -> Job:
    """Return the job with its service up to ``now_s`` in its account."""
    since_s = job.serves_since_s
    if not job.gpus or since_s is None or now_s <= since_s:
        return job
    return with_changes(
        job, {"served": _served(job, now_s - since_s, gpus, hosts), "serves_since_s": now_s}
    )


def served_until(
    job: Job, now_s: float, gpus: Mapping[GpuId, Gpu], hosts: Mapping[HostId, Host]
) -> tuple[Service, ...]:
    """Return the job's account as if it were settled at ``now_s``."""
    return settle(job, now_s, gpus, hosts).served


def _served(
    job: Job, seconds: float, gpus: Mapping[GpuId, Gpu], hosts: Mapping[HostId, Host]
) -> tuple[Service, ...]:
    counts: dict[tuple[str, str], int] = {}
    for gpu in job.gpus:
        key = (hosts[gpus[gpu].host].gpu_type, job.stage.value)
        counts[key] = counts.get(key, 0) + 1
    known = {(service.gpu_type, service.phase): service.gpu_s for service in job.served}
    for key, count in counts.items():
        known[key] = known.get(key, 0.0) + count * seconds
    return tuple(Service(*key, gpu_s) for key, gpu_s in sorted(known.items()))
