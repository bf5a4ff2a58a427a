"""Init's own log lines, and keeping the log files of a container from growing without bound.

Does: copies a file that is too long to NAME.1 and empties it. Its writers append, so they go on at
its new end; what they write during the copy may be lost. Never: renames a file that is written to,
or fails because a disk is full.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from pathlib import Path


def say(text: str) -> None:
    """One line on init's own log; on a full disk it is not written."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with contextlib.suppress(OSError):
        print(f"{stamp} init: {text}", file=sys.stderr, flush=True)


def cap(folder: Path, bytes_max: int) -> None:
    """Empty each log file of ``folder`` beyond ``bytes_max``; the old text is in NAME.1 then."""
    for log in folder.glob("*.log"):
        with contextlib.suppress(OSError):
            if log.stat().st_size > bytes_max:
                shutil.copyfile(log, log.with_name(log.name + ".1"))
                os.truncate(log, 0)
