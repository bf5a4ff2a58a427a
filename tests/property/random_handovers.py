"""Random events around hand-overs: the engine and its coordinator over a log in memory.

``python -m tests.property.random_handovers SEEDS`` tries many (``seeds``). What may happen, and
what must hold, is that of ``test_handover``, which lets hypothesis choose the events.
"""

from __future__ import annotations

import random
import sys

from reshape_controller.core.model import Mechanism
from tests.property import seeds
from tests.property.test_handover import ACTIONS, BEGINNINGS, JOBS, ONE_HOST, Chaos, play

STEPS_MIN, STEPS_MAX = 20, 120


def run(seed: int) -> int:
    """Try one seed; return the number of its events."""
    rng = random.Random(seed)
    mechanism = rng.choice((Mechanism.SIDECAR, Mechanism.SIDECAR, Mechanism.TERMINATE))
    chaos = Chaos(mechanism, rng.choice(ONE_HOST))
    count = rng.randint(STEPS_MIN, STEPS_MAX)
    steps = [(rng.choice(ACTIONS), rng.choice(JOBS), rng.randint(0, 29)) for _ in range(count)]
    play(chaos, rng.choice(BEGINNINGS), steps)
    return count


if __name__ == "__main__":
    sys.exit(seeds.main("tests.property.random_handovers", run, "events"))
