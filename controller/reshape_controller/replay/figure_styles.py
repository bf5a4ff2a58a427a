"""Approaches in figures and their styles, which differ in dashes, hatching and lightness."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from reshape_controller.replay.paper import DEFAULT, OURS, SHOWN, TERMINATION

STYLES: dict[str, tuple[str, Any, str]] = {
    OURS: ("#0b3c6f", "-", ""),
    TERMINATION: ("#d1691b", (0, (5, 1.5)), "////"),
    DEFAULT: ("#9a9a9a", "-", "...."),
    "paper": ("#2a9d8f", (0, (1.2, 1)), "xxxx"),
}
"""Colour, dashes and hatching. The colours differ in lightness and for the colour-blind."""
OTHERS: tuple[tuple[str, Any, str], ...] = (
    ("#7b4173", (0, (3, 1, 1, 1)), "\\\\"),
    ("#b5a300", (0, (2, 2)), "++++"),
    ("#d62728", (0, (6, 1, 1, 1, 1, 1)), "oo"),
    ("#17becf", (0, (8, 2)), "--"),
)
IN_TABLES = ("adaptive+terminate", "optimus+sidecar")
"""Approaches that a comparison has by default, but only its tables show."""


def labels_in_figures(labels: Sequence[str]) -> list[str]:
    """Return the approaches that figures show.

    Beside an approach of the paper, those of ``IN_TABLES`` are omitted.
    """
    beside = any(label in STYLES for label in labels)
    return [label for label in labels if not (beside and label in IN_TABLES)]


def style_of(label: str, beside: Iterable[str]) -> tuple[str, Any, str]:
    """Return an approach's style, which is unique among up to 16 approaches."""
    if label in STYLES:
        return STYLES[label]
    number = [one for one in beside if one not in STYLES].index(label)
    again = number + number // len(OTHERS)
    shade, (_, dashes, hatch) = OTHERS[number % len(OTHERS)][0], OTHERS[again % len(OTHERS)]
    return shade, dashes, hatch


def stroke(label: str, beside: Iterable[str]) -> dict[str, Any]:
    """Return colour, dashes and width of an approach's line."""
    shade, dashes, _ = style_of(label, beside)
    return {"color": shade, "linestyle": dashes, "linewidth": 1.1}


def name(label: str) -> str:
    """Return an approach's name in a legend."""
    return SHOWN.get(label, label)
