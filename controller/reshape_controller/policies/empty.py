"""What a plan that changes nothing says: why the first of those that wait does so, and until when
that holds.

Does: keeps the first reason, the earliest time to ask again, and behind whom nobody was looked at.
Never: decides that nothing changes. State: of one decision.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from reshape_controller.core.explain import gpus
from reshape_controller.core.model import JobId
from reshape_controller.core.plan import JobView, Plan

HOLDS = "holds-for-overdue"


class EmptyPlan:
    """Made up while a decision looks for something better."""

    def __init__(self, now_s: float) -> None:
        self._now_s = now_s
        self._plan = Plan()
        self._wake_at_s = inf
        self._looked_up_to: JobId | None = None

    @property
    def says_why(self) -> bool:
        """Whether somebody was named who waits."""
        return self._plan.about is not None

    def made(self) -> Plan:
        """The plan."""
        wake_at_s = None if self._wake_at_s == inf else self._wake_at_s
        return replace(self._plan, wake_at_s=wake_at_s, looked_up_to=self._looked_up_to)

    def wake(self, at_s: float) -> None:
        """Something may be other than now at this time."""
        if at_s > self._now_s:
            self._wake_at_s = min(self._wake_at_s, at_s)

    def looked_up_to(self, job: JobView, usual_wait_s: float) -> None:
        """Whoever stands behind this job would not be looked at; if this is asked again before
        somebody who comes now would have waited for ``usual_wait_s``."""
        if self._wake_at_s <= self._now_s + usual_wait_s:
            self._looked_up_to = job.id

    def because(self, plan: Plan) -> None:
        """This is why; the first reason counts, so ask before whether it ``says_why``."""
        self._plan = plan

    def nothing_fits(self, newcomer: JobView) -> None:
        """Nobody can give the newcomer what it needs."""
        if not self.says_why:
            text = (
                f"{newcomer.spec.name} waits: no host that takes jobs has the "
                f"{gpus(newcomer.sizes[0])} that it needs at least, idle or from one running job"
            )
            self.because(Plan((), "waits-nothing-fits", text, newcomer.id))

    def is_kept_for(self, newcomer: JobView) -> None:
        """GPUs are kept for somebody who waited too long, which comes before other reasons."""
        if self._plan.reason_code != HOLDS:
            text = f"{newcomer.spec.name} waited too long: GPUs that become idle are kept for it"
            self.because(Plan((), HOLDS, text, newcomer.id))
