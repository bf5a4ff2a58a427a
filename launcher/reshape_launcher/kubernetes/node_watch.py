"""The nodes of a cluster, kept by a watch: one list, and then only what changes.

Does: list the nodes once, follow their changes in a thread, and list them again after each error,
with growing pauses. Never: answer with nodes while the API server cannot be followed; then each
call raises the reason.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Protocol

from reshape_launcher.kubernetes.values import KubernetesError, Node

PAUSE_MIN_S = 1.0
PAUSE_MAX_S = 30.0
"""Shortest and longest pause after an error, which each further error doubles."""


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
                raise self._error
            return tuple(self._nodes[name] for name in sorted(self._nodes))

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
        pause_s = PAUSE_MIN_S
        while not self._closed.is_set():
            try:
                version = version or self._list()
                version = self._take_changes(version)
                pause_s = PAUSE_MIN_S
            except Expired:
                version = ""
            except Exception as error:
                # Not a node is told until a new list has worked.
                with self._lock:
                    self._error = _as_trouble(error)
                version = ""
                self._closed.wait(pause_s)
                pause_s = min(PAUSE_MAX_S, 2 * pause_s)

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
    if isinstance(error, KubernetesError):
        return error
    return KubernetesError("nodes cannot be watched", 0, repr(error))
