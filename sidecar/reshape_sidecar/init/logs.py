"""Init's own log lines, and the bound on the size of a container's log files.

Does: copies a file that is too long to NAME.1 and empties it. Its writers append, so they go on at
its new end; lines that they write during the copy may be lost. At the end of the container a file
that is still too long is cut to its end. A full disk is no error.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

CHUNK_BYTES = 1 << 20


def write_line(text: str) -> None:
    """Write one line to init's own log; a full disk is no error."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with contextlib.suppress(OSError):
        print(f"{stamp} init: {text}", file=sys.stderr, flush=True)


def rotate(folder: Path, bytes_max: int) -> None:
    """Copy each log file of ``folder`` beyond ``bytes_max`` to NAME.1 and empty it."""
    for log in folder.glob("*.log"):
        with contextlib.suppress(OSError):
            if log.stat().st_size > bytes_max:
                _keep_last(log, log.with_name(log.name + ".1"), bytes_max)
                os.truncate(log, 0)


def keep_end(folder: Path, bytes_max: int) -> None:
    """Cut each log file to its last ``bytes_max`` bytes, after its writers have ended."""
    for log in folder.glob("*.log"):
        with contextlib.suppress(OSError):
            if log.stat().st_size > bytes_max:
                copy = log.with_name(log.name + ".cut")
                try:
                    _keep_last(log, copy, bytes_max)
                    copy.chmod(log.stat().st_mode & 0o777)
                    copy.replace(log)
                finally:
                    copy.unlink(missing_ok=True)


def _keep_last(log: Path, copy: Path, bytes_max: int) -> None:
    """Copy the last ``bytes_max`` bytes that are in ``log`` now."""
    with open(log, "rb") as source, open(copy, "wb") as target:
        source.seek(-bytes_max, os.SEEK_END)
        left_bytes = bytes_max
        while left_bytes > 0 and (chunk := source.read(min(left_bytes, CHUNK_BYTES))):
            target.write(chunk)
            left_bytes -= len(chunk)
