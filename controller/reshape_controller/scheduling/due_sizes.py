"""Running jobs whose size is settled whatever the policy: a person has pinned them, or they have
more GPUs than their program uses.

Does: shrinks such a job before the policy is asked, for no other job; grows a pinned one after the
policy wants nothing and no queued job may start; says which pin keeps a queued job waiting. Never:
starts, moves or preempts a job, names one that is frozen, or has steps lost for unused GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reshape_controller.core.fast_replace import replace
from reshape_controller.core.model import Job, JobId, Mechanism
from reshape_controller.core.phrases import gpus
from reshape_controller.core.plan import JobView, Plan, Snapshot
from reshape_controller.scheduling import gang_moves, legal_moves
from reshape_controller.scheduling.only_option import only_option

PINNED = "it is pinned there"


class DueSizes:
    """The running jobs of one engine that are pinned, or use fewer GPUs than they have. It keeps
    them between decisions, so that a decision costs nothing without one."""

    def __init__(self) -> None:
        self._jobs: dict[JobId, JobView] = {}

    def follow(self, changed: Mapping[JobId, JobView | None]) -> None:
        """Take in the views that changed since the last call; None: the job is in no list."""
        for job_id, view in changed.items():
            if view is not None and view.size and view.sizes and (view.pinned or view.uses):
                self._jobs[job_id] = view
            else:
                self._jobs.pop(job_id, None)

    def shrink(self, snapshot: Snapshot) -> Plan | None:
        """Return the plan that brings a job down to its size; None if no job may go there now."""
        for job in self._movable(snapshot):
            due = job.sizes[-1]
            if due >= job.size or job.no_shrink_before_s > snapshot.now_s:
                continue
            if job.pinned:
                return _plan("shrinks-to-pin", job, due, PINNED)
            if not job.loses:
                return _plan("gives-unused-back", job, due, f"its program uses {job.uses} of them")
        return None

    def instead_of(
        self,
        plan: Plan,
        snapshot: Snapshot,
        jobs: Mapping[JobId, Job],
        decide: Callable[[Snapshot], Plan],
    ) -> Plan:
        """Return what takes the place of the policy's empty plan: the growth of a job to its size,
        or the plan with the pins that keep a queued job waiting as its reason.

        ``jobs``: the engine's; ``decide``: the policy's.
        """
        if not self._jobs:
            return plan
        growth = self._growth(snapshot)
        return growth or self._with_reason(plan, snapshot, jobs, decide)

    def _growth(self, snapshot: Snapshot) -> Plan | None:
        """The plan that brings a job up to its size on idle GPUs of its hosts; None if no job may
        go there now, or if a queued job may start."""
        if legal_moves.startable(snapshot):
            return None
        idle = {host.id: host for host in snapshot.idle}
        for job in self._movable(snapshot):
            due = job.sizes[-1]
            if job.pinned and due in gang_moves.growth_sizes(job, idle):
                return _plan("grows-to-pin", job, due, PINNED)
        return None

    def _with_reason(
        self,
        plan: Plan,
        snapshot: Snapshot,
        jobs: Mapping[JobId, Job],
        decide: Callable[[Snapshot], Plan],
    ) -> Plan:
        """The plan with its reason, if the policy would start a queued job now without the pins of
        jobs that could give GPUs."""
        if not (snapshot.queued and snapshot.explain):
            return plan
        free: dict[JobId, JobView] = {}
        for job in self._jobs.values():
            sizes = replace(jobs[job.id], pinned=None).sizes
            if job.pinned and not job.frozen and sizes and sizes[0] < job.size:
                free[job.id] = replace(job, sizes=sizes, pinned=False)
        if not free:
            return plan
        running = tuple([free.get(job.id, job) for job in snapshot.running])
        targets = decide(replace(snapshot, running=running, index=None)).targets
        queued = {job.id: job for job in snapshot.queued}
        newcomer = next((queued[each.job] for each in targets if each.job in queued), None)
        gives = [free[t.job] for t in targets if t.job in free and t.size < free[t.job].size]
        if newcomer is None or not gives:
            return plan
        names = " ".join(job.spec.name for job in gives)
        held = " and ".join(f"{job.spec.name} is pinned at {gpus(job.size)}" for job in gives)
        text = f"{newcomer.spec.name} waits: {held}; to let it give some: reshape unpin {names}"
        options = plan.options if plan.about == newcomer.id else ()
        return replace(
            plan, reason_code="waits-for-pinned", text=text, about=newcomer.id, options=options
        )

    def _movable(self, snapshot: Snapshot) -> list[JobView]:
        """The jobs that a plan may name, in queue order."""
        if not self._jobs or snapshot.mechanism is Mechanism.NONE:
            return []
        usable = {host.id: None for host in snapshot.hosts}
        jobs = [
            job
            for job in self._jobs.values()
            if not job.frozen and all(host in usable for host in job.all_hosts)
        ]
        return sorted(jobs, key=lambda job: (-job.spec.priority, job.place, job.id))


def _plan(code: str, job: JobView, size: int, why: str) -> Plan:
    text = f"{job.spec.name} goes from {job.size} to {gpus(size)}: {why}"
    return only_option((gang_moves.in_place(job, size),), code, text, job.id)
