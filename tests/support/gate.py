"""How many examples random tests try: all of them, or a third where `GATE=1` is set.

Does: reads the environment. Never: leaves a test out. State: none.
"""

from __future__ import annotations

import os

from hypothesis import settings

GATE = bool(os.environ.get("GATE"))
SHARE = 3
"""The gate tries each SHARE-th of the examples; `.ci/run all` tries all."""


def examples(number: int) -> int:
    """Return how many of this number of examples this run tries."""
    return -(-number // SHARE) if GATE else number


settings.register_profile("gate", max_examples=examples(settings().max_examples))
settings.load_profile("gate")
