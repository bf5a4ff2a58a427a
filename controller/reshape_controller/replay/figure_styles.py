"""Which approaches figures show, and how they are told apart: by dashes and hatching and by the
lightness of their colour. Never: draws. State: none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from reshape_controller.replay.paper import DEFAULT, OURS, SHOWN, TERMINATION

LOOKS: dict[str, tuple[str, Any, str]] = {
    OURS: ("#0b3c6f", "-", ""),
    TERMINATION: ("#d1691b", (0, (5, 1.5)), "////"),
    DEFAULT: ("#9a9a9a", "-", "...."),
    "paper": ("#2a9d8f", (0, (1.2, 1)), "xxxx"),
}
"""Colour, dashes, hatching. The colours differ in lightness and for the colour-blind."""
OTHERS: tuple[tuple[str, Any, str], ...] = (
    ("#7b4173", (0, (3, 1, 1, 1)), "\\\\"),
    ("#b5a300", (0, (2, 2)), "++++"),
    ("#d62728", (0, (6, 1, 1, 1, 1, 1)), "oo"),
    ("#17becf", (0, (8, 2)), "--"),
)
IN_TABLES = ("adaptive+terminate", "optimus+sidecar")
"""Compared by default for what decision and mechanism earn, and told in tables alone."""


def drawn(labels: Sequence[str]) -> list[str]:
    """Those of the compared approaches that figures show: all, but for those of ``IN_TABLES``
    beside one of the paper's."""
    beside = any(label in LOOKS for label in labels)
    return [label for label in labels if not (beside and label in IN_TABLES)]


def look(label: str, beside: Iterable[str]) -> tuple[str, Any, str]:
    """How an approach is drawn: like none of those beside it, if these are at most 16."""
    if label in LOOKS:
        return LOOKS[label]
    number = [one for one in beside if one not in LOOKS].index(label)
    again = number + number // len(OTHERS)
    shade, (_, dashes, hatch) = OTHERS[number % len(OTHERS)][0], OTHERS[again % len(OTHERS)]
    return shade, dashes, hatch


def stroke(label: str, beside: Iterable[str]) -> dict[str, Any]:
    """Colour, dashes and width of an approach's line."""
    shade, dashes, _ = look(label, beside)
    return {"color": shade, "linestyle": dashes, "linewidth": 1.1}


def name(label: str) -> str:
    """How an approach is called in a legend."""
    return SHOWN.get(label, label)
