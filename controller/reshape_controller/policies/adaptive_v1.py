"""``adaptive`` as it was first released, for comparisons; it decides as it always did.

Queued jobs have their turn by priority and place, the makespan decides, and a job moves to as many
GPUs as it has or more. docs/policies.md has the differences to ``adaptive``.
"""

from __future__ import annotations

from reshape_controller.core.plan import Plan, Snapshot
from reshape_controller.policies.adaptive import name_of
from reshape_controller.scheduling import legal_moves
from reshape_controller.scheduling.decision import Decision
from reshape_controller.scheduling.rules import COOL_DOWN, GAIN, MAX_WAIT_S, Rules


class AdaptiveV1:
    """The policy. Its name shows the settings that are not the default."""

    may_preempt = True

    def __init__(
        self,
        gain: float | str = GAIN,
        cool_down: float | str = COOL_DOWN,
        max_wait_s: float | str = MAX_WAIT_S,
    ) -> None:
        """Settings are numbers, or the text of one. Raises ValueError."""
        self.rules = Rules(float(gain), float(cool_down), float(max_wait_s))
        self.name = name_of("adaptive-v1", self.rules)

    def may_act(self, *, queued: bool, idle: bool) -> bool:
        """Return whether a plan may change anything: a start, or growth onto idle GPUs."""
        return queued or idle

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return the next single decision."""
        plan = Decision(self.rules, snapshot).make()
        return legal_moves.with_gangs_left(plan, snapshot.running, "adaptive-v1")
