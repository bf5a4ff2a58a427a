"""Which attempts have a folder below the launcher's root.

Does: lists them, and skips jobs of which nothing can change any more, so that a look costs what
runs and not what ever ran. Never: takes a folder that cannot be listed for an empty one. State:
jobs whose every attempt is over, by the time at which their folder last changed.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Container
from pathlib import Path

from reshape_sidecar.init.values import INIT_FILE

Attempt = tuple[str, int]
SETTLED_NS = 10_000_000_000
"""A folder that changed so recently may change again without a later time on it."""
_ATTEMPT_NAME = re.compile(r"attempt-(\d+)\Z")


class AttemptFolders:
    """``ROOT/JOB/attempt-N`` whose init has written its pid at some time."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen = False
        self._over: dict[str, tuple[int, list[Attempt]]] = {}

    def attempts(self, gone: Container[Attempt]) -> list[Attempt]:
        """Every attempt; ``gone``: those that are over for good. Raises OSError."""
        try:
            with os.scandir(self._root) as entries:
                jobs = [(e.name, e.stat().st_mtime_ns) for e in entries if e.is_dir()]
        except FileNotFoundError:
            if self._seen:
                raise
            return []
        self._seen = True
        found: list[Attempt] = []
        for job, changed_ns in jobs:
            known = self._over.get(job)
            if known is not None and known[0] == changed_ns:
                found += known[1]
                continue
            attempts, started = self._of(job)
            found += started
            old = time.time_ns() - changed_ns > SETTLED_NS
            if old and all(attempt in gone for attempt in attempts):
                self._over[job] = (changed_ns, started)
        return found

    def _of(self, job: str) -> tuple[list[Attempt], list[Attempt]]:
        """Attempts that have a folder, and those among them that were ever started."""
        try:
            with os.scandir(self._root / job) as entries:
                names = [_ATTEMPT_NAME.match(entry.name) for entry in entries]
        except FileNotFoundError:
            return [], []
        attempts = [(job, int(match.group(1))) for match in names if match is not None]
        return attempts, [found for found in attempts if self._started(*found)]

    def _started(self, job: str, number: int) -> bool:
        try:
            os.stat(self._root / job / f"attempt-{number}" / "run" / INIT_FILE)
        except FileNotFoundError:
            return False
        return True
