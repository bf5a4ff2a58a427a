"""Results that the paper prints (sections V and VI), for comparison with ours.

They are no inputs of a replay. The paper has absolute times only as bars in figures, so none is
here.
"""

from __future__ import annotations

from dataclasses import dataclass

WORKLOADS = ("one", "two", "three", "four")
OURS, TERMINATION, DEFAULT = "adaptive", "termination", "default"
SHOWN = {
    OURS: "Reshape (adaptive)",
    "paper": "paper's algorithms",
    TERMINATION: "termination",
    DEFAULT: "default",
}
"""The paper's names of approaches."""


@dataclass(frozen=True, slots=True)
class PaperFigures:
    """Printed results of a workload: the ratios by which the framework is below others."""

    makespan_below_default: float
    makespan_below_termination: float
    mean_jct_below_default: float
    mean_jct_below_termination: float
    overhead: float
    overhead_termination: float


PRINTED = {
    "one": PaperFigures(0.45, 0.17, 0.63, 0.27, 0.089, 0.293),
    "two": PaperFigures(0.34, 0.20, 0.58, 0.37, 0.067, 0.219),
    "three": PaperFigures(0.42, 0.17, 0.61, 0.35, 0.076, 0.271),
    "four": PaperFigures(0.36, 0.18, 0.55, 0.36, 0.083, 0.286),
}
"""Results of sections VI.A and VI.B and Table VIII, by workload."""
PENDING_ONE = {OURS: 0, DEFAULT: 12, TERMINATION: 3}
"""Pending jobs when the last job of workload one is submitted (Figure 8)."""
ADDS_ONE = {OURS: 16, TERMINATION: 46}
"""Adding events in workload one (Figure 11)."""
