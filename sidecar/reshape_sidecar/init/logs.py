"""Init's own log lines, and keeping the log files of a container from growing without bound.

Does: copies a file that is too long to NAME.1 and empties it. Its writers append, so they go on at
its new end; what they write during the copy may be lost. At the end of the container a file that is
still too long keeps its end. Never: renames a file that is written to, follows a writer that is as
fast as the copy, or fails because a disk is full.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

CHUNK_BYTES = 1 << 20


def write_line(text: str) -> None:
    """One line on init's own log; on a full disk it is not written."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with contextlib.suppress(OSError):
        print(f"{stamp} init: {text}", file=sys.stderr, flush=True)


def rotate(folder: Path, bytes_max: int) -> None:
    """Empty each log file of ``folder`` beyond ``bytes_max``; the old text is in NAME.1 then."""
    for log in folder.glob("*.log"):
        with contextlib.suppress(OSError):
            if log.stat().st_size > bytes_max:
                _keep_last(log, log.with_name(log.name + ".1"), bytes_max)
                os.truncate(log, 0)


def keep_end(folder: Path, bytes_max: int) -> None:
    """Leave the last ``bytes_max`` bytes of each log file, now that nobody writes to it."""
    for log in folder.glob("*.log"):
        with contextlib.suppress(OSError):
            if log.stat().st_size > bytes_max:
                kept = log.with_name(log.name + ".cut")
                try:
                    _keep_last(log, kept, bytes_max)
                    kept.chmod(log.stat().st_mode & 0o777)
                    kept.replace(log)
                finally:
                    kept.unlink(missing_ok=True)


def _keep_last(log: Path, kept: Path, bytes_max: int) -> None:
    """Copy the last ``bytes_max`` bytes that are in ``log`` now."""
    with open(log, "rb") as source, open(kept, "wb") as target:
        source.seek(-bytes_max, os.SEEK_END)
        left = bytes_max
        while left > 0 and (chunk := source.read(min(left, CHUNK_BYTES))):
            target.write(chunk)
            left -= len(chunk)
