"""Our scheduler: of all single decisions possible now, the best one for all accepted jobs.

Does: has the rules of docs/policies.md as values; ``scheduling.decision`` decides by them.
docs/decisions/0010 and 0110 have the reasons.
"""

from __future__ import annotations

from reshape_controller.core.plan import Plan, Snapshot
from reshape_controller.scheduling.decision import Decision
from reshape_controller.scheduling.rules import COOL_DOWN, GAIN, MAX_WAIT_S, Rules


class Adaptive:
    """The policy. It holds its rules only; its name shows the settings that are not the
    default."""

    may_preempt = True

    def __init__(
        self,
        gain: float | str = GAIN,
        cool_down: float | str = COOL_DOWN,
        max_wait_s: float | str = MAX_WAIT_S,
    ) -> None:
        """Settings are numbers, or the text of one. Raises ValueError."""
        self.rules = Rules(float(gain), float(cool_down), float(max_wait_s), moves_to_any_size=True)
        self.name = name_of("adaptive", self.rules)

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return the next single decision."""
        return Decision(self.rules, snapshot).make()


def name_of(name: str, rules: Rules) -> str:
    """Return the name of a policy, with its settings that are not the default."""
    usual = {"gain": GAIN, "cool_down": COOL_DOWN, "max_wait_s": MAX_WAIT_S}
    changed = [
        f"{setting}={getattr(rules, setting):.12g}"
        for setting, value in usual.items()
        if getattr(rules, setting) != value
    ]
    return ":".join([name, ",".join(changed)] if changed else [name])
