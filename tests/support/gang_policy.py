"""A policy that moves jobs of two workers on two hosts: ``python -m tests.support.gang_policy``.

Does: runs ``reshape`` with the policy ``halve-gangs``: a newcomer gets its largest size that is
idle on both hosts, else half of a gang's GPUs there; a gang grows once nothing is queued. With one
usable host, or for a job that is on one, it takes what is idle there. Never: predicts anything.
"""

from __future__ import annotations

from reshape_controller.cli.main import main
from reshape_controller.core.model import HostId, Share, Spans
from reshape_controller.core.plan import JobView, Plan, Snapshot, Target
from reshape_controller.policies import BUILT_IN


class HalveGangs:
    """The policy. It knows two hosts with equally many GPUs."""

    name = "halve-gangs"

    def decide(self, snapshot: Snapshot) -> Plan:
        idle = {host.id: host.idle for host in snapshot.hosts}
        for job in snapshot.queued:
            plan = _start(snapshot, job, idle) if idle else None
            if plan is not None:
                return plan
        for job in snapshot.running:
            fits = [size for size in job.sizes if 0 < size - job.size <= 2 * min(idle.values())]
            if fits and job.shares and not job.frozen and not snapshot.queued:
                return Plan((on_both(job, fits[-1], idle),), "grow", about=job.id)
        return Plan()


def on_both(job: JobView, size: int, hosts: dict[HostId, int]) -> Target:
    """Return the target of a job with a worker on each of two hosts."""
    one, two = hosts
    return Target(job.id, size, one, (Share(one, 1), Share(two, 1)))


def _start(snapshot: Snapshot, job: JobView, idle: dict[HostId, int]) -> Plan | None:
    if len(idle) == 1 or job.spec.span is Spans.NEVER:
        host, room = max(idle.items(), key=lambda item: item[1])
        on_one = [size for size in job.sizes if size <= room]
        return Plan((Target(job.id, on_one[-1], host),), "one", about=job.id) if on_one else None
    fits = [size for size in job.sizes if size <= 2 * min(idle.values())]
    if fits:
        return Plan((on_both(job, fits[-1], idle),), "idle", about=job.id)
    for other in snapshot.running:
        half = other.size // 2
        if other.shares and not other.frozen and half in other.sizes and half in job.sizes:
            targets = (on_both(job, half, idle), on_both(other, half, idle))
            return Plan(targets, "half", about=job.id)
    return None


if __name__ == "__main__":
    BUILT_IN[HalveGangs.name] = HalveGangs
    main()
