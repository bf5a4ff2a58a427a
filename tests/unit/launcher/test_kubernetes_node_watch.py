"""Nodes by a watch: one list, then changes; no node is told while the server is not followed."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from reshape_launcher.kubernetes import node_watch
from reshape_launcher.kubernetes.node_watch import Expired, NodeWatch
from reshape_launcher.kubernetes.values import KubernetesError, Node

FIRST = Node("node1", True, True, "b")
SECOND = replace(FIRST, name="node2")
Change = tuple[str, Node, str]


class Server:
    """An API server whose lists and changes a test gives."""

    def __init__(self) -> None:
        self.nodes: tuple[Node, ...] = (FIRST,)
        self.version = "1"
        self.lists = 0
        self.error: Exception | None = None
        self.asked: list[str] = []
        self.changes: queue.Queue[Change | Exception | None] = queue.Queue()

    def list_nodes(self, selector: str) -> tuple[tuple[Node, ...], str]:
        self.lists += 1
        if self.error is not None:
            raise self.error
        return self.nodes, self.version

    def node_changes(self, selector: str, version: str) -> Iterator[Change]:
        self.asked.append(version)
        while True:
            change = self.changes.get()
            if isinstance(change, Exception):
                raise change
            if change is None:
                return
            yield change


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(node_watch, "PAUSE_MIN_S", 0.01)
    monkeypatch.setattr(node_watch, "SHORT_S", 0.0)
    made = Server()
    yield made
    made.changes.put(None)


def until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 20.0
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.005)


def failing(watch: NodeWatch) -> bool:
    try:
        watch.nodes()
    except KubernetesError:
        return True
    return False


def test_nodes_are_listed_once_and_then_follow_their_changes(server: Server) -> None:
    watch = NodeWatch(server, "")
    assert watch.nodes() == (FIRST,)
    server.changes.put(("ADDED", SECOND, "2"))
    until(lambda: watch.nodes() == (FIRST, SECOND))
    tainted = replace(FIRST, ready=False)
    server.changes.put(("MODIFIED", tainted, "3"))
    until(lambda: watch.nodes() == (tainted, SECOND))
    server.changes.put(("DELETED", tainted, "4"))
    until(lambda: watch.nodes() == (SECOND,))
    assert server.lists == 1
    watch.close()


def test_a_watch_that_ends_goes_on_from_its_newest_version(server: Server) -> None:
    watch = NodeWatch(server, "")
    watch.nodes()
    server.changes.put(("BOOKMARK", FIRST, "7"))
    server.changes.put(None)
    until(lambda: server.asked == ["1", "7"])
    assert (server.lists, watch.nodes()) == (1, (FIRST,))
    watch.close()


def test_a_version_that_the_server_forgot_is_a_new_list_and_no_error(server: Server) -> None:
    watch = NodeWatch(server, "")
    watch.nodes()
    server.nodes, server.version = (SECOND,), "9"
    server.changes.put(Expired())
    until(lambda: watch.nodes() == (SECOND,))
    assert (server.lists, server.asked[-1]) == (2, "9")
    watch.close()


def test_while_the_server_is_away_each_call_says_so_and_then_the_nodes_are_new(
    server: Server,
) -> None:
    watch = NodeWatch(server, "")
    watch.nodes()
    server.error = KubernetesError("nodes cannot be listed", 429, "too many requests")
    server.changes.put(ConnectionResetError("cut"))
    until(lambda: failing(watch))
    server.nodes, server.error = (SECOND,), None
    until(lambda: not failing(watch))
    assert watch.nodes() == (SECOND,)
    watch.close()


def test_a_server_that_refuses_is_asked_less_and_less_often(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_watch, "PAUSE_MIN_S", 0.1)
    watch = NodeWatch(server, "")
    watch.nodes()
    server.error = KubernetesError("nodes cannot be listed", 500, "broken")
    server.changes.put(ConnectionResetError("cut"))
    time.sleep(1.0)
    assert server.lists <= 6, "no busy loop"
    watch.close()


def test_watches_that_end_at_once_become_lists_with_growing_pauses(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_watch, "PAUSE_MIN_S", 0.1)
    monkeypatch.setattr(node_watch, "SHORT_S", 1.0)
    watch = NodeWatch(server, "")
    watch.nodes()
    server.nodes = (FIRST, SECOND)
    for _ in range(100):
        server.changes.put(None)
    until(lambda: watch.nodes() == (FIRST, SECOND))
    time.sleep(1.0)
    assert server.lists <= 8, "no busy loop"
    assert "ended after 0.0 s" in watch.problem()
    watch.close()


def test_a_first_list_that_fails_is_the_callers_error(server: Server) -> None:
    server.error = KubernetesError("nodes cannot be listed", 0, "away")
    with pytest.raises(KubernetesError, match="away"):
        NodeWatch(server, "").nodes()
