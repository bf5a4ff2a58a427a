"""Random events of two SideCars: the real init and the real ``converge`` over processes in memory.

``python -m tests.property.random_sidecars SEEDS`` tries many (``seeds``). What may happen, and what
must hold, is that of ``test_sidecar_processes``, which lets hypothesis choose the events.
"""

from __future__ import annotations

import random
import sys

from tests.property import seeds
from tests.property.test_sidecar_processes import BEGINNINGS, EVENTS, JOBS, play

STEPS_MIN, STEPS_MAX = 10, 100


def run(seed: int) -> int:
    """Try one seed; return the number of its events."""
    rng = random.Random(seed)
    count = rng.randint(STEPS_MIN, STEPS_MAX)
    steps = [(rng.choice(EVENTS), rng.choice(JOBS), rng.randint(0, 5)) for _ in range(count)]
    play(rng.choice(BEGINNINGS), steps)
    return count


if __name__ == "__main__":
    sys.exit(seeds.main("tests.property.random_sidecars", run, "events"))
