"""The inputs of a decision that are assumed, in words: lengths and speeds that nothing gives.

Does: examines the jobs that a plan names, and the job that it is about. It decides nothing.
"""

from __future__ import annotations

from dataclasses import replace

from reshape_controller.core.plan import JobView, Plan, Snapshot
from reshape_controller.core.profile_book import DEFAULT_WORK_S, total_steps

ASSUMED_SHOWN_MAX = 8
"""The most assumed inputs that a plan names."""


def with_assumed_inputs(plan: Plan, snapshot: Snapshot) -> Plan:
    """Return a plan that is explained with the assumed inputs of the jobs in it."""
    if not snapshot.explain or plan.about is None:
        return plan
    names = {plan.about: None} | {target.job: None for target in plan.targets}
    for option in plan.options:
        names |= {target.job: None for target in option.targets}
    jobs = [job for job in (*snapshot.queued, *snapshot.running) if job.id in names]
    found = [text for job in jobs for text in _assumed(snapshot, job)]
    return replace(plan, assumed=tuple(found[:ASSUMED_SHOWN_MAX])) if found else plan


def _assumed(snapshot: Snapshot, job: JobView) -> list[str]:
    found, spec, book = [], job.spec, snapshot.profiles
    if total_steps(book, spec, job.progress, job.curve) is None:
        hours = DEFAULT_WORK_S / 3600
        found.append(f"{spec.name}: length unknown: {hours:g} h of one GPU assumed")
    types = dict.fromkeys([job.gpu_type] if job.gpu_type else [h.gpu_type for h in snapshot.hosts])
    learned = book.learned_of(spec.job_type).speed if spec.job_type is not None else ()
    if job.measured or learned or any(book.knows_speed(spec.job_type, kind) for kind in types):
        return found
    found.append(f"{spec.name}: speed unknown: 1.7 times as fast on 2 GPUs, 2.4 times on 4 assumed")
    return found
