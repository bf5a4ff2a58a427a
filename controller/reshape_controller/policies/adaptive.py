"""Our scheduler: the sizes that let all accepted jobs end earliest. First version, no profiles.

Does: starts a newcomer on idle GPUs, or on those that one running job can spare; gives idle GPUs
back when nobody waits for them. Never: reshapes a job whose length it cannot know upwards.
"""

from __future__ import annotations

from reshape_controller.core.model import Mechanism
from reshape_controller.core.plan import HostView, JobView, Option, Plan, Snapshot, Target


class Adaptive:
    """Stateless; see the module."""

    name = "adaptive"

    def decide(self, snapshot: Snapshot) -> Plan:
        """The next single decision."""
        for newcomer in snapshot.queued:
            if newcomer.frozen or newcomer.not_before_s > snapshot.now_s:
                continue
            options = _starts(snapshot, newcomer)
            if options:
                size = max(options, key=lambda option: option.targets[0].size).targets[0].size
                return _plan(newcomer, options, f"{newcomer.spec.name} starts on {size} GPUs")
        grows = _grows(snapshot)
        if grows:
            job, option = grows[0]
            text = f"{job.spec.name} grows from {job.size} to {option.targets[0].size} GPUs"
            return Plan(option.targets, "idle-gpus", text, job.id, (option,), 0)
        return Plan()


def _plan(newcomer: JobView, options: list[Option], text: str) -> Plan:
    chosen = max(
        range(len(options)),
        key=lambda i: (options[i].targets[0].size, -len(options[i].targets), -i),
    )
    code = "starts-on-idle" if len(options[chosen].targets) == 1 else "shrinks-for-newcomer"
    return Plan(options[chosen].targets, code, text, newcomer.id, tuple(options), chosen)


def _starts(snapshot: Snapshot, newcomer: JobView) -> list[Option]:
    hosts = [h for h in snapshot.hosts if not newcomer.initialized or h.id == newcomer.host]
    idle = [
        Option((Target(newcomer.id, size, host.id),))
        for host in hosts
        for size in newcomer.sizes
        if host.idle >= size
    ]
    if idle or snapshot.mechanism is Mechanism.NONE:
        return idle
    return [
        Option((Target(newcomer.id, size, host.id), Target(donor.id, keeps, host.id)))
        for host in hosts
        for size in newcomer.sizes
        for donor in snapshot.running
        if _may_shrink(snapshot, donor, host)
        for keeps in donor.sizes
        if keeps < donor.size and size - host.idle <= donor.size - keeps <= size
    ]


def _may_shrink(snapshot: Snapshot, donor: JobView, host: HostView) -> bool:
    return (
        donor.host == host.id
        and not donor.frozen
        and donor.shrinkable
        and donor.no_shrink_before_s <= snapshot.now_s
    )


def _grows(snapshot: Snapshot) -> list[tuple[JobView, Option]]:
    if snapshot.mechanism is Mechanism.NONE:
        return []
    idle = {host.id: host.idle for host in snapshot.hosts}
    return [
        (job, Option((Target(job.id, max(sizes), job.host),)))
        for job in snapshot.running
        if not job.frozen and job.growable and job.host in idle
        for sizes in [[s for s in job.sizes if job.size < s <= job.size + idle[job.host]]]
        if sizes
    ]
