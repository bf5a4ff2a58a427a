"""Our scheduler: of all single decisions possible now, the best one for all accepted jobs.

Does: has the rules of docs/policies.md as values; ``scheduling.decision`` decides by them.
docs/decisions/0010 and 0110 have the reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reshape_controller.core.plan import Plan, Snapshot
from reshape_controller.scheduling.decision import Decision
from reshape_controller.scheduling.rules import (
    COOL_DOWN,
    GAIN,
    MAX_WAIT_S,
    Objective,
    QueueOrder,
    Rules,
)

MAKESPAN = Rules(
    moves_to_any_size=True,
    objective=Objective.MAKESPAN,
    queue_order=QueueOrder.RATIO,
    critical_first=True,
    lends=True,
    guard_lengths=2.0,
    gangs=True,
)
OBJECTIVES = {
    "makespan": MAKESPAN,
    "balanced": replace(MAKESPAN, objective=Objective.SUM),
    "jct": replace(
        MAKESPAN,
        objective=Objective.SUM,
        queue_order=QueueOrder.SHORTEST,
        critical_first=False,
        guard_lengths=4.0,
    ),
}
"""The rules by the name of the objective."""
OBJECTIVE = "makespan"
"""The default objective."""
PREEMPTS = ("priority", "ratio", "overdue")
"""For what a job may be preempted: for a higher priority alone, which is the default, or also for a
job of its own priority that waits far longer than it trains, or that is overdue."""


class Adaptive:
    """The policy. It holds its rules only; its name shows the settings that are not the
    default."""

    may_preempt = True

    def __init__(
        self,
        gain: float | str = GAIN,
        cool_down: float | str = COOL_DOWN,
        max_wait_s: float | str = MAX_WAIT_S,
        objective: str = OBJECTIVE,
        preempt: str = PREEMPTS[0],
    ) -> None:
        """Settings are numbers, or the text of one; ``objective``: a key of ``OBJECTIVES``;
        ``preempt``: one of ``PREEMPTS``. Raises ValueError."""
        if preempt not in PREEMPTS:
            raise ValueError(f"preempt is {preempt!r}; use one of {', '.join(PREEMPTS)}")
        if objective not in OBJECTIVES:
            raise ValueError(f"objective is {objective!r}; use one of {', '.join(OBJECTIVES)}")
        self.rules = replace(
            OBJECTIVES[objective],
            gain=float(gain),
            cool_down=float(cool_down),
            max_wait_s=float(max_wait_s),
            preempts_by_ratio=preempt == "ratio",
            preempts_overdue=preempt == "overdue",
        )
        others = [] if objective == OBJECTIVE else [f"objective={objective}"]
        others += [] if preempt == PREEMPTS[0] else [f"preempt={preempt}"]
        self.name = name_of("adaptive", self.rules, others)

    def may_act(self, *, queued: bool, idle: bool) -> bool:
        """Return whether a plan may change anything: a start, or growth onto idle GPUs."""
        return queued or idle

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return the next single decision."""
        return Decision(self.rules, snapshot).make()


def name_of(name: str, rules: Rules, others: Sequence[str] = ()) -> str:
    """Return the name of a policy, with its settings that are not the default; ``others``: further
    ones, as text."""
    usual = {"gain": GAIN, "cool_down": COOL_DOWN, "max_wait_s": MAX_WAIT_S}
    changed = [
        f"{setting}={getattr(rules, setting):.12g}"
        for setting, value in usual.items()
        if getattr(rules, setting) != value
    ]
    changed += others
    return ":".join([name, ",".join(changed)] if changed else [name])
