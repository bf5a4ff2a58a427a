"""What the hook has to say goes to standard error, one line each, marked as ours.

Does: prints. Never: used when nothing happened to the job, or fails because a disk is full.
State: none.
"""

from __future__ import annotations

import contextlib
import sys


def complain(message: str) -> None:
    """One line in the job's log."""
    with contextlib.suppress(OSError):
        print(f"reshape: {message}", file=sys.stderr, flush=True)
