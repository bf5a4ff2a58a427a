"""Fewer searches for reference cycles while millions of values are made and almost none is a cycle.

Does: set the garbage collector's threshold for the length of a block, and set it back.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

COLLECT_AFTER = 200_000
"""Number of live new values that starts a search for reference cycles."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let the garbage collector run rarely.

    Its default of a collection per 700 values takes a twelfth of the time of a replay, and a fifth
    of that of a conversion.
    """
    first, *others = gc.get_threshold()
    gc.set_threshold(max(first, COLLECT_AFTER) if first else 0, *others)
    try:
        yield
    finally:
        gc.set_threshold(first, *others)
