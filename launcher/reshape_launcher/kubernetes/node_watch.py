"""The nodes of a cluster, kept by a watch: one list, and then only what changes.

Does: list the nodes once, follow their changes in a thread, and list them again after each error.
If watches end at once, it goes on by lists, with growing pauses. Never: answer with nodes after a
list that failed; then each call raises the reason.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable
from typing import Protocol

from reshape_launcher.kubernetes import backoff
from reshape_launcher.kubernetes.values import KubernetesError, Node

PAUSE_MIN_S = 1.0
PAUSE_MAX_S = 10.0
"""Shortest and longest pause after an error, which each further error doubles."""
SHORT_S = 1.0
"""A watch that ends within this time is an error: to go on from it would be a busy loop."""
STEADY_S = 5.0
"""A watch that has lasted for this time is no problem."""


class Expired(Exception):
    """The server does not remember the version from which a watch was to go on."""


class NodeSource(Protocol):
    """The calls of a watch. Each raises KubernetesError."""

    def list_nodes(self, selector: str) -> tuple[tuple[Node, ...], str]:
        """Return all nodes with these labels, and the version of this list."""

    def node_changes(self, selector: str, version: str) -> Iterable[tuple[str, Node, str]]:
        """Yield for each change since ``version`` its kind, the node, and the new version.

        Kinds are ADDED, MODIFIED, DELETED and BOOKMARK (no change). Ends from time to time. Raises
        Expired.
        """


class NodeWatch:
    """The nodes with some labels. The first call of ``nodes`` lists them and begins the watch."""

    def __init__(self, source: NodeSource, selector: str) -> None:
        self._source = source
        self._selector = selector
        self._starting, self._lock = threading.Lock(), threading.Lock()
        self._nodes: dict[str, Node] = {}
        self._error: KubernetesError | None = None
        """Why the newest list failed; None if it did not."""
        self._short = ""
        """Why watches end at once; empty if the newest ones lasted."""
        self._since_s = math.inf
        """Begin of the present watch."""
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes by name, as of the newest change. Raises KubernetesError."""
        with self._starting:
            if self._thread is None:
                version = self._list()
                self._thread = threading.Thread(
                    target=self._follow, args=(version,), name="node-watch", daemon=True
                )
                self._thread.start()
        with self._lock:
            if self._error is not None:
                raise self._error.copy()
            return tuple(self._nodes[name] for name in sorted(self._nodes))

    def problem(self) -> str:
        """Return why the nodes cannot be followed by a watch; empty if they can."""
        with self._lock:
            steady = time.monotonic() - self._since_s >= STEADY_S
            return "" if steady else self._short

    def close(self) -> None:
        """End the watch at its next change or end; the thread ends with the process at last."""
        self._closed.set()

    def _list(self) -> str:
        nodes, version = self._source.list_nodes(self._selector)
        with self._lock:
            self._nodes = {node.name: node for node in nodes}
            self._error = None
        return version

    def _follow(self, version: str) -> None:
        failures = 0
        while not self._closed.is_set():
            begin_s = time.monotonic()
            error: KubernetesError | None = None
            try:
                version = version or self._list()
            except Exception as failed:
                # Not a node is told until a new list has worked.
                with self._lock:
                    self._error = error = _as_trouble(failed)
            else:
                version, error = self._watch(version)
            steady = error is None or time.monotonic() - begin_s >= STEADY_S
            failures = 0 if steady else failures + 1
            with self._lock:
                again = error is not None and failures < 2 and self._error is None
                self._short = "" if error is None or failures < 2 else str(error)
            if error is not None and not again:
                pause_s = backoff.pause_s(PAUSE_MIN_S, PAUSE_MAX_S, failures - 1)
                self._closed.wait(max(pause_s, error.retry_after_s))

    def _watch(self, version: str) -> tuple[str, KubernetesError | None]:
        """Follow changes until the watch ends; return the version from which another goes on
        (empty: after a new list), and why it ended too early, if it did."""
        begin_s = time.monotonic()
        with self._lock:
            self._since_s = begin_s
        error: KubernetesError | None = None
        try:
            version = self._take_changes(version)
        except Exception as failed:
            version, error = "", _as_trouble(failed)
        lasted_s = time.monotonic() - begin_s
        if error is None and lasted_s < SHORT_S and not self._closed.is_set():
            what = f"the connection ended after {lasted_s:.1f} s"
            version, error = "", KubernetesError("nodes cannot be watched", 0, what)
        with self._lock:
            self._since_s = math.inf
        return version, error

    def _take_changes(self, version: str) -> str:
        for kind, node, newer in self._source.node_changes(self._selector, version):
            version = newer
            with self._lock:
                if kind == "DELETED":
                    self._nodes.pop(node.name, None)
                elif kind != "BOOKMARK":
                    self._nodes[node.name] = node
            if self._closed.is_set():
                break
        return version


def _as_trouble(error: Exception) -> KubernetesError:
    if isinstance(error, Expired):
        return KubernetesError(
            "nodes cannot be watched", 410, "the server forgets versions at once"
        )
    if isinstance(error, KubernetesError):
        return error
    return KubernetesError("nodes cannot be watched", 0, repr(error))
