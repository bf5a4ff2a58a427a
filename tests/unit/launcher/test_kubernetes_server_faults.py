"""The client and the watch of nodes through a proxy that plays an API server's bad day."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reshape_launcher.kubernetes import call_pauses, node_watch, preflight
from reshape_launcher.kubernetes.api import ClusterClient, connect
from reshape_launcher.kubernetes.change_signal import ChangeSignal
from reshape_launcher.kubernetes.finding import Finding
from reshape_launcher.kubernetes.gpus import SimulatedDevices
from reshape_launcher.kubernetes.node_watch import NodeWatch
from reshape_launcher.kubernetes.settings import PodSettings
from reshape_launcher.kubernetes.values import KubernetesError
from tests.support.api_proxy import BROKEN, TOO_MANY, Answer, ApiProxy, Request, refusal
from tests.support.api_server import ApiServer, node


class World:
    """A client of a small API server, with a proxy between them."""

    def __init__(self, server: ApiServer, proxy: ApiProxy, cluster: ClusterClient) -> None:
        self.server, self.proxy, self.cluster = server, proxy, cluster
        self.watch = NodeWatch(cluster, "")

    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.watch.nodes())

    def fails(self) -> bool:
        try:
            self.watch.nodes()
        except KubernetesError:
            return True
        return False

    def lists(self, begin_s: float) -> int:
        return len([r for r in self.proxy.since(begin_s, "/api/v1/nodes") if not r.watches])


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(node_watch, "STEADY_S", 1.5)
    with ApiServer("node1") as server, ApiProxy(server.url) as proxy:
        cluster = connect(proxy.kubeconfig(tmp_path), "training")
        made = World(server, proxy, cluster)
        yield made
        made.watch.close()
        cluster.close()


def until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 30.0
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.02)


@pytest.mark.parametrize("answer", [TOO_MANY, BROKEN], ids=["429", "500"])
def test_a_server_that_fails_is_named_and_not_asked_in_a_loop(world: World, answer: Answer) -> None:
    with world.proxy.answering(answer):
        begin_s = time.monotonic()
        while time.monotonic() < begin_s + 2.0:
            with pytest.raises(KubernetesError, match="pods cannot be listed"):
                world.cluster.pods("a=b")
        assert len(world.proxy.since(begin_s)) <= 4
        said = world.cluster.problem()
    assert f"HTTP {answer.status}" in said
    assert answer.document["message"] in said
    until(lambda: bool(_pods(world) == ()))
    assert world.cluster.problem() == ""


def _pods(world: World) -> object:
    try:
        return world.cluster.pods("a=b")
    except KubernetesError:
        return None


def test_the_servers_retry_after_is_honoured(world: World) -> None:
    wait = refusal(429, "TooManyRequests", "too many requests", "Retry-After: 2")
    with world.proxy.answering(wait):
        begin_s = time.monotonic()
        while time.monotonic() < begin_s + 1.9:
            with pytest.raises(KubernetesError) as caught:
                world.cluster.pods("a=b")
            time.sleep(0.05)
        assert caught.value.retry_after_s == 2.0
        assert len(world.proxy.since(begin_s)) == 1


def test_a_server_that_is_away_is_named_the_same_each_time(world: World) -> None:
    with world.proxy.down():
        texts = set()
        for _ in range(20):
            with pytest.raises(KubernetesError, match="does not answer") as caught:
                world.cluster.pods("a=b")
            texts.add(str(caught.value).replace("Remote end closed connection", "Reset"))
    assert not any("object at 0x" in text for text in texts), "each would be a line of the log"


def test_a_watch_goes_on_from_its_newest_version(world: World) -> None:
    world.watch = NodeWatch(_Short(world.cluster), "")
    assert world.names() == ("node1",)
    begin_s = time.monotonic()
    world.server.change("ADDED", node("node2"))
    until(lambda: world.names() == ("node1", "node2"))
    until(lambda: bool(world.proxy.since(begin_s, f"resourceVersion={world.server.newest}&")))
    world.server.change("DELETED", world.server.nodes["node1"])
    until(lambda: world.names() == ("node2",))
    assert world.lists(begin_s) == 0, "nothing is listed a second time"
    assert world.watch.problem() == ""


class _Short:
    """The client with watches of 2 s."""

    def __init__(self, cluster: ClusterClient) -> None:
        self.list_nodes = cluster.list_nodes
        self.node_changes = lambda selector, version: cluster.node_changes(selector, version, 2)


def test_a_version_that_the_server_forgot_leads_to_one_new_list(world: World) -> None:
    world.names()
    world.server.change("ADDED", node("node2"))
    until(lambda: world.names() == ("node1", "node2"))
    begin_s = time.monotonic()
    world.server.oldest = world.server.newest + 1
    world.server.newest += 5
    with world.proxy.short_watches(0.0):
        pass  # cuts the present watch
    until(lambda: world.lists(begin_s) >= 1)
    world.server.change("ADDED", node("node3"))
    until(lambda: world.names() == ("node1", "node2", "node3"))
    assert world.lists(begin_s) <= 2


def test_watches_that_are_cut_at_once_are_named_and_nodes_come_by_lists(world: World) -> None:
    world.names()
    with world.proxy.short_watches(0.0):
        begin_s = time.monotonic()
        world.server.change("ADDED", node("node2"))
        until(lambda: world.names() == ("node1", "node2"))
        until(lambda: "nodes cannot be watched" in world.watch.problem())
        time.sleep(max(0.0, begin_s + 4.0 - time.monotonic()))
        assert len(world.proxy.since(begin_s)) <= 12, "no busy loop"
        assert not world.fails()
    until(lambda: world.watch.problem() == "")


def test_a_watch_that_the_server_refuses_to_a_list_that_works_is_named(world: World) -> None:
    def no_watch(request: Request) -> Answer | None:
        return TOO_MANY if request.watches else None

    world.names()
    with world.proxy.answering(no_watch):
        until(lambda: "too many requests" in world.watch.problem())
        assert world.names() == ("node1",)


def test_while_no_list_works_no_node_is_told_and_no_request_is_lost_in_a_loop(
    world: World,
) -> None:
    world.names()
    with world.proxy.down():
        until(world.fails)
        begin_s = time.monotonic()
        time.sleep(3.0)
        assert len(world.proxy.since(begin_s)) <= 4
    until(lambda: not world.fails())
    assert world.names() == ("node1",)


def test_pauses_are_short_beside_the_deadline_of_a_silent_host() -> None:
    assert call_pauses.PAUSE_MAX_S + node_watch.PAUSE_MAX_S < 60.0


def test_watches_of_pods_are_open_until_they_are_cut(world: World) -> None:
    signal = ChangeSignal(world.cluster, "a=b")
    assert signal.take()
    until(lambda: not signal.take() and not signal.take())
    with world.proxy.down():
        until(signal.take)
        assert signal.take(), "in doubt each look lists"
    until(lambda: not signal.take() and not signal.take())
    signal.close()


def finding(world: World, check: str) -> Finding:
    """What ``doctor`` finds about it."""
    settings = PodSettings(namespace="training", controller="reshape", image="team/base:1")
    found = preflight.findings(world.cluster, settings, SimulatedDevices(2))
    return next(each for each in found if each.check == check)


def test_the_doctor_tries_a_watch_and_names_what_cuts_it(world: World) -> None:
    assert finding(world, "watch").ok
    with world.proxy.short_watches(0.0):
        cut = finding(world, "watch")
    assert (cut.ok, "ended after 0." in cut.detail, "prox" in cut.remedy) == (False, True, True)
    with world.proxy.answering(lambda request: TOO_MANY if request.watches else None):
        refused = finding(world, "watch")
    assert (refused.ok, "too many requests" in refused.detail) == (False, True)


def test_the_doctor_names_a_server_of_an_old_version(world: World) -> None:
    world.server.version = "v1.24.17"
    old = finding(world, "API server")
    assert not old.ok
    assert "version v1.24.17, which is older than 1.29" in old.detail
    assert old.remedy == "upgrade the cluster to Kubernetes 1.29 or newer"
