"""The attempts that have a folder below the launcher's root.

Does: list them without reading the folders of finished jobs again, so that the cost depends on what
runs, not on all jobs of the past. Never: take a folder that cannot be listed for an empty one.
State: jobs whose attempts have all ended, by the time of their folder's last change.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Container
from pathlib import Path

from reshape_sidecar.init.look import init_of
from reshape_sidecar.init.values import INIT_FILE

Attempt = tuple[str, int]
MTIME_SETTLE_NS = 10_000_000_000
"""A folder that changed this recently may change again without a later mtime."""
_ATTEMPT_NAME = re.compile(r"attempt-(\d+)\Z")


class AttemptFolders:
    """``ROOT/JOB/attempt-N`` whose init has written its pid at some time."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._root_existed = False
        self._finished: dict[str, tuple[int, list[Attempt]]] = {}

    def attempts(self, ended: Container[Attempt]) -> list[Attempt]:
        """Return every started attempt; ``ended``: attempts that are final. Raises OSError."""
        try:
            with os.scandir(self._root) as entries:
                jobs = [(e.name, e.stat().st_mtime_ns) for e in entries if e.is_dir()]
        except FileNotFoundError:
            if self._root_existed:
                raise
            return []
        self._root_existed = True
        found: list[Attempt] = []
        for job, changed_ns in jobs:
            known = self._finished.get(job)
            if known is not None and known[0] == changed_ns:
                found += known[1]
                continue
            attempts, started = self._of(job)
            found += started
            old = time.time_ns() - changed_ns > MTIME_SETTLE_NS
            if old and all(attempt in ended for attempt in attempts):
                self._finished[job] = (changed_ns, started)
        return found

    def _of(self, job: str) -> tuple[list[Attempt], list[Attempt]]:
        """Return the attempts that have a folder, and those of them that were started."""
        try:
            with os.scandir(self._root / job) as entries:
                names = [_ATTEMPT_NAME.match(entry.name) for entry in entries]
        except FileNotFoundError:
            return [], []
        attempts = [(job, int(match.group(1))) for match in names if match is not None]
        return attempts, [found for found in attempts if self.started(*found)]

    def started(self, job: str, number: int) -> bool:
        """Return whether the init of an attempt has written its pid at some time, or lives."""
        run = self._root / job / f"attempt-{number}" / "run"
        try:
            os.stat(run / INIT_FILE)
        except FileNotFoundError:
            return init_of(run) is not None  # its file was removed, and it lives
        return True
