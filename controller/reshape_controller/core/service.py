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
    gpu_type = hosts[gpus[job.gpus[0]].host].gpu_type  # a job's GPUs are on one host
    phase, gpu_s = job.stage.value, len(job.gpus) * (now_s - since_s)
    for number, before in enumerate(job.served):
        if before.gpu_type == gpu_type and before.phase == phase:
            now = Service(gpu_type, phase, before.gpu_s + gpu_s)
            return (*job.served[:number], now, *job.served[number + 1 :])
    account = [*job.served, Service(gpu_type, phase, gpu_s)]
    return tuple(sorted(account, key=lambda service: (service.gpu_type, service.phase)))
