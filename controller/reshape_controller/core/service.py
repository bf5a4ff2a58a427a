"""The attained service of jobs: GPU-seconds by GPU type and stage, exact.

Does: adds what a job has used of its GPUs to its account whenever its GPUs or its stage change.
Between two changes the account stands still; ``served_until`` adds the time since. Usage and
metrics read this account; no other code sums GPU time of live jobs.
"""

from __future__ import annotations

from collections.abc import Mapping

from reshape_controller.core.model import Gpu, GpuId, Host, HostId, Job, Service


def served_until(
    job: Job, now_s: float, gpus: Mapping[GpuId, Gpu], hosts: Mapping[HostId, Host]
) -> tuple[Service, ...]:
    """Return the job's account with its service up to ``now_s``."""
    since_s = job.serves_since_s
    if not job.gpus or since_s is None or now_s <= since_s:
        return job.served
    counts: dict[str, int] = {}
    for gpu in job.gpus:
        gpu_type = hosts[gpus[gpu].host].gpu_type
        counts[gpu_type] = counts.get(gpu_type, 0) + 1
    phase = job.stage.value
    account = {(service.gpu_type, service.phase): service for service in job.served}
    for gpu_type, count in counts.items():
        before = account.get((gpu_type, phase))
        gpu_s = count * (now_s - since_s) + (before.gpu_s if before is not None else 0.0)
        account[gpu_type, phase] = Service(gpu_type, phase, gpu_s)
    if len(account) == len(job.served):
        return tuple(account.values())
    return tuple([account[key] for key in sorted(account)])
