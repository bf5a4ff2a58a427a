"""What the paper prints about its evaluation (sections V and VI), to stand beside ours. Values.

Never: an input of a replay. Absolute times are only in its figures, as bars, and are not read off.
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
"""Names in figures."""


@dataclass(frozen=True, slots=True)
class Printed:
    """Figures of one workload: parts by which the framework is below the other approach."""

    makespan_below_default: float
    makespan_below_termination: float
    mean_jct_below_default: float
    mean_jct_below_termination: float
    overhead: float
    overhead_termination: float


PRINTED = {
    "one": Printed(0.45, 0.17, 0.63, 0.27, 0.089, 0.293),
    "two": Printed(0.34, 0.20, 0.58, 0.37, 0.067, 0.219),
    "three": Printed(0.42, 0.17, 0.61, 0.35, 0.076, 0.271),
    "four": Printed(0.36, 0.18, 0.55, 0.36, 0.083, 0.286),
}
"""Sections VI.A and VI.B, Table VIII."""
PENDING_ONE = {OURS: 0, DEFAULT: 12, TERMINATION: 3}
"""Pending jobs when the last job of workload one is submitted (Figure 8)."""
ADDS_ONE = {OURS: 16, TERMINATION: 46}
"""Adding events in workload one (Figure 11)."""
