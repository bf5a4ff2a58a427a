"""Arrivals in bursts, and lengths with a heavy tail, as public traces of clusters have them.

Does: draws both from a generator of random numbers. The distributions are assumed, not fitted to
a trace.
"""

from __future__ import annotations

import random
from itertools import accumulate

BURST_JOBS = 5.0
"""Mean number of jobs of a burst (geometric)."""
WITHIN = 0.02
"""Mean gap within a burst, as part of the mean gap between bursts."""
TAIL = 1.1
"""Exponent of the bounded Pareto distribution of lengths: a tenth of the jobs has half the work."""
SHORTEST, LONGEST = 0.2, 20.0
"""Bounds of that distribution, in lengths of the job type."""


def arrivals(draw: random.Random, jobs: int, last_s: float) -> list[float]:
    """Draw the times of ``jobs`` arrivals in bursts, the first at 0 and the last at ``last_s``."""
    gaps = [0.0]
    while len(gaps) < jobs:
        within = draw.random() < 1.0 - 1.0 / BURST_JOBS
        gaps.append(draw.expovariate(1.0) * (WITHIN if within else 1.0))
    sums = list(accumulate(gaps))
    return [last_s * (value / (sums[-1] or 1.0)) for value in sums]


def factor(draw: random.Random) -> float:
    """Draw the length of a job, in lengths of its type."""
    least, most = SHORTEST**-TAIL, LONGEST**-TAIL
    return float((least - draw.random() * (least - most)) ** (-1.0 / TAIL))
