"""Why a job that trains does not have more GPUs, in words for its user.

Does: names the first rule of the engine that keeps it at its size, or else the missing figure; if
neither does, the policy decided. Reads the state alone.
"""

from __future__ import annotations

from reshape_controller.core.model import Job, Mechanism, Stage
from reshape_controller.core.phrases import each_gpus, gpus
from reshape_controller.core.profile_book import total_steps
from reshape_controller.core.state import State
from reshape_controller.core.unused_gpus import why_not_more


def why_not_larger(state: State, job: Job) -> str:
    """Return why the job has not its largest number of GPUs; empty if it has, or does not train."""
    larger = [size for size in job.spec.optional_gpus if size > len(job.gpus)]
    if job.stage is not Stage.TRAINING or job.host is None or not larger:
        return ""
    if state.mechanism is Mechanism.NONE:
        return "the mechanism none changes no running job"
    if job.pinned is not None:
        return f"pinned at {gpus(job.pinned)}"
    if job.uses and min(larger) > max(job.sizes, default=0):
        return why_not_more(job)
    if job.frozen:
        return "a hand-over is under way"
    if job.fixed_because:
        return job.fixed_because
    allowed = [size for size in larger if size not in job.struck]
    if not allowed:
        return f"failed to start on {each_gpus(larger[::-1])}"
    idle, lacks = _idle_for(state, job, min(allowed) - len(job.gpus))
    if lacks:
        return lacks
    if total_steps(state.profiles, job.spec, job.progress, job.curve) is None:
        return f"{gpus(idle)} idle: length unknown, set epochs or steps"
    return f"{gpus(idle)} idle: policy {state.policy} keeps its size"


def _idle_for(state: State, job: Job, more: int) -> tuple[int, str]:
    """Return the idle GPUs on the hosts of a job, and what one of them lacks if the job is to get
    so many more in place; empty if none lacks any."""
    total, lacks = 0, ""
    hosts = job.hosts or (job.host,) * job.spec.workers
    for host in dict.fromkeys(hosts):
        assert host is not None
        needs = hosts.count(host) * more // job.spec.workers
        idle = len(state.idle_gpus(host))
        total += idle
        if idle < needs and not lacks:
            lacks = f"needs {gpus(needs)} more on {host}, {idle} idle"
    return total, lacks
