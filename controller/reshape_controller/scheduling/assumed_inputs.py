"""The inputs of a decision that are assumed, in words: lengths and speeds that nothing gives.

Does: examines the jobs that a plan names, and the job that it is about. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from reshape_controller.core.model import JobId
from reshape_controller.core.plan import JobView, Plan, Snapshot
from reshape_controller.core.profile_book import DEFAULT_WORK_S, total_steps

ASSUMED_SHOWN_MAX = 8
"""The most assumed inputs that a plan names."""

HOST_TEXT = "for each further host half of that for a further GPU"
_Gang = tuple[str, int, int]
"""The GPU type of a job on several hosts, its GPUs, and its hosts."""


def with_assumed_inputs(plan: Plan, snapshot: Snapshot) -> Plan:
    """Return a plan that is explained with the assumed inputs of the jobs in it."""
    if not snapshot.explain or plan.about is None:
        return plan
    names = {plan.about: None} | {target.job: None for target in plan.targets}
    for option in plan.options:
        names |= {target.job: None for target in option.targets}
    jobs = [job for job in (*snapshot.queued, *snapshot.running) if job.id in names]
    gangs = _gangs(plan, snapshot)
    found = [text for job in jobs for text in _assumed(snapshot, job, gangs.get(job.id, ()))]
    return replace(plan, assumed=tuple(found[:ASSUMED_SHOWN_MAX])) if found else plan


def _gangs(plan: Plan, snapshot: Snapshot) -> dict[JobId, list[_Gang]]:
    """Return the gangs of a plan, by job."""
    types = {host.id: host.gpu_type for host in snapshot.hosts}
    gangs: dict[JobId, list[_Gang]] = {}
    of_options = [target for option in plan.options for target in option.targets]
    for target in (*plan.targets, *of_options):
        if target.shares and target.size:
            gpu_type = types.get(target.host, "")
            gangs.setdefault(target.job, []).append((gpu_type, target.size, len(target.shares)))
    return gangs


def _assumed(snapshot: Snapshot, job: JobView, gangs: Iterable[_Gang]) -> list[str]:
    found, spec, book = [], job.spec, snapshot.profiles
    if total_steps(book, spec, job.progress, job.curve) is None:
        hours = DEFAULT_WORK_S / 3600
        found.append(f"{spec.name}: length unknown: {hours:g} h of one GPU assumed")
    if any(not _knows_hosts(snapshot, job, gang) for gang in gangs):
        found.append(f"{spec.name}: time lost between hosts unknown: {HOST_TEXT} assumed")
    types = dict.fromkeys([job.gpu_type] if job.gpu_type else [h.gpu_type for h in snapshot.hosts])
    learned = book.learned_of(spec.job_type).speed if spec.job_type is not None else ()
    if job.measured or learned or any(book.knows_speed(spec.job_type, kind) for kind in types):
        return found
    found.append(f"{spec.name}: speed unknown: 1.7 times as fast on 2 GPUs, 2.4 times on 4 assumed")
    return found


def _knows_hosts(snapshot: Snapshot, job: JobView, gang: _Gang) -> bool:
    gpu_type, size, hosts = gang
    measured = any(each.hosts > 1 and each.gpu_type == gpu_type for each in job.measured)
    return measured or snapshot.profiles.knows_hosts(job.spec.job_type, gpu_type, size, hosts)
