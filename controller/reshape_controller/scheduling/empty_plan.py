"""The plan without targets: why nothing changes, and when to decide again.

Does: collects the reason, the wake-up and the last examined job while a decision looks for a better
plan.
"""

from __future__ import annotations

from math import inf

from reshape_controller.core.fast_replace import replace
from reshape_controller.core.model import JobId
from reshape_controller.core.phrases import gpus
from reshape_controller.core.plan import JobView, Plan

HOLDS = "holds-for-overdue"
"""The reason code of a plan that keeps GPUs idle for an overdue job."""
NOTHING_TO_DO = Plan()


class EmptyPlanBuilder:
    """Collects the fields of the plan without targets while a decision looks for a better one."""

    def __init__(self, now_s: float) -> None:
        self._now_s = now_s
        self._plan = NOTHING_TO_DO
        self._wake_at_s = inf
        self._looked_up_to: JobId | None = None

    @property
    def has_reason(self) -> bool:
        """True once a reason for waiting is recorded."""
        return self._plan.about is not None

    def build(self) -> Plan:
        """Return the plan."""
        wake_at_s = None if self._wake_at_s == inf else self._wake_at_s
        return replace(self._plan, wake_at_s=wake_at_s, looked_up_to=self._looked_up_to)

    def wake(self, at_s: float) -> None:
        """Ask for another decision at a time (Unix seconds), if that is in the future."""
        if at_s > self._now_s:
            self._wake_at_s = min(self._wake_at_s, at_s)

    def set_looked_up_to(self, job: JobView, default_wait_s: float) -> None:
        """Record that a job queued behind ``job`` would change nothing. This holds only if the
        next decision comes before a job that arrives now is overdue, so it needs a wake-up within
        ``default_wait_s``."""
        if self._wake_at_s <= self._now_s + default_wait_s:
            self._looked_up_to = job.id

    def set_reason(self, plan: Plan) -> None:
        """Replace the reason by that of ``plan``. The first reason counts: check ``has_reason``
        before."""
        self._plan = plan

    def add_nothing_fits(self, newcomer: JobView, *, spans: bool) -> None:
        """Record that no host, or with ``spans`` no number of hosts, can give the newcomer what it
        needs, if there is no reason yet."""
        if not self.has_reason:
            has = "usable hosts have not" if spans else "no usable host has"
            text = (
                f"{newcomer.spec.name} waits: {has} the {gpus(newcomer.sizes[0])} "
                "that it needs at least, idle or taken from running jobs"
            )
            self.set_reason(Plan((), "waits-nothing-fits", text, newcomer.id))

    def add_held_for(self, newcomer: JobView, idle: int) -> None:
        """Record that GPUs are held for an overdue job, of which so many are idle now. This
        replaces any other reason."""
        if self._plan.reason_code != HOLDS:
            held = f"{gpus(idle)} idle" if idle else "no GPU is idle"
            text = (
                f"{newcomer.spec.name} waited past max_wait_s: {held}; no other job gets the GPUs "
                "that become idle where it could run"
            )
            self.set_reason(Plan((), HOLDS, text, newcomer.id))
