"""The hook's own lines in the job's log (standard error), each marked with ``reshape:``."""

from __future__ import annotations

import contextlib
import sys


def complain(message: str) -> None:
    """Write one line to the job's log; a full disk is no error."""
    with contextlib.suppress(OSError):
        print(f"reshape: {message}", file=sys.stderr, flush=True)
