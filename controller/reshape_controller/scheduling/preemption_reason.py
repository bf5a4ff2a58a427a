"""The reason for which a plan preempts running jobs, computed again outside the policy.

Does: lets only policies preempt that say so, and takes in a plan's reason only if the snapshot
confirms it. The figures that the log has are those of here. ``core.preemption`` has the rules that
need no prediction.
"""

from __future__ import annotations

from dataclasses import replace

from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.plan import (
    JobView,
    Plan,
    Policy,
    Preemption,
    Snapshot,
    Target,
)
from reshape_controller.core.states import PreemptionReason
from reshape_controller.scheduling import gang_start
from reshape_controller.scheduling.alone import AloneTimes
from reshape_controller.scheduling.predictor import Predictor

OVERDUE_MIN_S = 3600.0
"""Shortest wait of an overdue job."""
OVERDUE_LENGTHS = 2.0
"""An overdue job has waited for so many times the time that it needs alone."""
RATIO_MIN = 3.0
"""Smallest ratio of a job's wait and own time to its own time, for the reason ``ratio``."""
LEFT_RATIO_MIN = 4.0
"""The preempted job has so many times the newcomer's time to go, for the reason ``ratio``."""
ROUNDING_S = 0.001
"""By so much later than computed a wait or ratio is certainly reached."""


def confirmed(plan: Plan, snapshot: Snapshot, policy: Policy) -> Plan:
    """Return the plan with the figures of its preemption as the snapshot has them. Raises
    PlanRejected if the policy may not preempt, or if the plan's reason does not hold."""
    if plan.preemption is None:  # then the engine rejects every target of size 0
        return plan
    victims = [target for target in plan.targets if target.size == 0]
    if not victims:
        return replace(plan, preemption=None)
    if not getattr(policy, "may_preempt", False):
        raise PlanRejected(f"policy {policy.name} may not preempt: it has no may_preempt")
    names = {target.job for target in plan.targets}
    newcomer = next((job for job in snapshot.queued if job.id in names), None)
    if newcomer is None:
        raise PlanRejected(f"{victims[0].job}: only a queued job can preempt it")
    predictor = Predictor(snapshot)
    best_s = AloneTimes(snapshot, predictor).best_s(newcomer)
    wait_s = snapshot.now_s - newcomer.waits_since_s
    found = Preemption(plan.preemption.reason, wait_s, best_s)
    why_not = ""
    if found.reason is PreemptionReason.OVERDUE:
        why_not = _why_not_overdue(newcomer, found)
    elif found.reason is PreemptionReason.RATIO:
        why_not = _why_not_ratio(snapshot, predictor, newcomer, victims, found)
    if why_not:
        raise PlanRejected(
            f"{newcomer.id}: the reason {found.reason.value} does not hold: {why_not}"
        )
    return replace(plan, preemption=found)


def idle_would_do(snapshot: Snapshot, newcomer: JobView) -> bool:
    """Whether idle GPUs are enough for a queued job at its smallest size."""
    return bool(gang_start.start_on_idle(snapshot, newcomer, min(newcomer.sizes)))


def overdue_wait_s(newcomer: JobView, best_s: float) -> float:
    """Return the shortest wait of a queued job for the reason ``overdue``; ``best_s``: the seconds
    that it needs alone."""
    return max(OVERDUE_MIN_S, OVERDUE_LENGTHS * best_s, newcomer.spec.max_wait_s or 0.0)


def _why_not_overdue(newcomer: JobView, found: Preemption) -> str:
    least_s = overdue_wait_s(newcomer, found.best_s)
    return "" if found.wait_s >= least_s else f"waited {found.wait_s:.0f} s of {least_s:.0f} s"


def _why_not_ratio(
    snapshot: Snapshot,
    predictor: Predictor,
    newcomer: JobView,
    victims: list[Target],
    found: Preemption,
) -> str:
    ratio = (found.wait_s + found.best_s) / found.best_s
    if not ratio >= RATIO_MIN:
        return f"its ratio is {ratio:.2f}, and {RATIO_MIN:g} is the least"
    if idle_would_do(snapshot, newcomer):
        return f"{min(newcomer.sizes)} idle GPUs would do"
    if len(victims) > 1:
        return "it preempts one job at most"
    victim = next((job for job in snapshot.running if job.id == victims[0].job), None)
    if victim is None or victim.size != min(victim.sizes, default=0):
        return f"{victims[0].job} does not run at its smallest size"
    left_s = predictor.unchanged_s(victim)
    if left_s < LEFT_RATIO_MIN * found.best_s:
        least_s = LEFT_RATIO_MIN * found.best_s
        return f"{victim.id} has {left_s:.0f} s to go, and {least_s:.0f} s is the least"
    return ""
