"""Whether Jobs or pods of a controller may have changed since the newest look, by watches.

Does: follow both kinds in a thread each, and note that something changed, not what. In doubt, that
is before a watch is open, after its end and after each error, it answers that something may have
changed. Never: take a watch as evidence of what there is; the caller lists.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Protocol

from reshape_launcher.kubernetes import backoff

KINDS = ("jobs", "pods")
PAUSE_MIN_S = 1.0
PAUSE_MAX_S = 30.0
"""Shortest and longest pause after a watch that failed, which each further failure doubles."""
STEADY_S = 5.0
"""A watch that has lasted for this time was no failure."""


class ChangeSource(Protocol):
    """The watch of a kind."""

    def changes(self, kind: str, selector: str) -> Iterator[None]:
        """Yield once the watch is open, and then at each change.

        Ends from time to time. Raises KubernetesError.
        """


class ChangeSignal:
    """One per launcher. The first call of ``take`` begins the watches."""

    def __init__(self, source: ChangeSource, selector: str) -> None:
        self._source = source
        self._selector = selector
        self._lock = threading.Lock()
        self._open: set[str] = set()
        """Kinds whose watch is open."""
        self._changed = True
        self._closed = threading.Event()
        self._threads: tuple[threading.Thread, ...] = ()

    def take(self) -> bool:
        """Return whether something may have changed since the call before."""
        with self._lock:
            if not self._threads:
                self._threads = tuple(
                    threading.Thread(target=self._follow, args=(k,), name=f"{k}-watch", daemon=True)
                    for k in KINDS
                )
                for thread in self._threads:
                    thread.start()
            changed = self._changed or len(self._open) < len(KINDS)
            self._changed = False
            return changed

    def mark(self) -> None:
        """Note a change that the caller made itself: its watch may tell of it later."""
        with self._lock:
            self._changed = True

    def close(self) -> None:
        """End the watches at their next change or end; the threads end with the process at last."""
        self._closed.set()

    def _follow(self, kind: str) -> None:
        failures = 0
        while not self._closed.is_set():
            begin_s = time.monotonic()
            # Not named: the caller's lists fail too, or they work and nothing is lost.
            with contextlib.suppress(Exception):
                self._watch(kind)
            failures = 0 if time.monotonic() - begin_s >= STEADY_S else failures + 1
            self._closed.wait(backoff.pause_s(PAUSE_MIN_S, PAUSE_MAX_S, failures))

    def _watch(self, kind: str) -> None:
        try:
            for _ in self._source.changes(kind, self._selector):
                with self._lock:
                    self._open.add(kind)
                    # Also as it opens: a change before that was in no watch.
                    self._changed = True
                if self._closed.is_set():
                    return
        finally:
            with self._lock:
                self._open.discard(kind)
