"""One controller per node: its Lease changes hands by a release or a person, and not by time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from reshape_launcher.kubernetes import naming
from reshape_launcher.kubernetes.gpus import SimulatedDevices
from reshape_launcher.kubernetes.launcher import KubernetesLauncher
from reshape_launcher.kubernetes.node_leases import LOOK_EVERY_S, NodeLeases
from reshape_launcher.kubernetes.values import Node
from tests.support.fake_cluster import FakeCluster
from tests.unit.launcher.pod_launches import NAME, Clock, launch
from tests.unit.launcher.test_kubernetes_manifests import SETTINGS

OTHER = "its GPUs are held by first (store a)"


def controller(
    cluster: FakeCluster, clock: Clock, store: str = "a", who: str = "first"
) -> NodeLeases:
    return NodeLeases(cluster, store, who, clock)


def test_the_first_controller_has_a_node_and_the_second_learns_of_it(
    cluster: FakeCluster, clock: Clock
) -> None:
    assert controller(cluster, clock).take(["node1"]) == {}
    assert controller(cluster, clock, "b", "second").take(["node1"]) == {"node1": OTHER}


def test_controllers_of_one_store_share_its_nodes(cluster: FakeCluster, clock: Clock) -> None:
    controller(cluster, clock).take(["node1"])
    assert controller(cluster, clock, "a", "a standby").take(["node1"]) == {}


def test_time_alone_gives_a_node_to_no_other_controller(cluster: FakeCluster, clock: Clock) -> None:
    controller(cluster, clock).take(["node1"])
    second = controller(cluster, clock, "b")
    for _ in range(100):
        clock.now_s += 10_000.0
        assert second.take(["node1"]) == {"node1": OTHER}


def test_a_released_node_is_the_next_controllers(cluster: FakeCluster, clock: Clock) -> None:
    first, second = controller(cluster, clock), controller(cluster, clock, "b", "second")
    first.take(["node1"])
    second.take(["node1"])
    first.release("node1")
    clock.now_s += LOOK_EVERY_S
    assert second.take(["node1"]) == {}
    clock.now_s += LOOK_EVERY_S
    assert first.take(["node1"]) == {"node1": "its GPUs are held by second (store b)"}


def test_nobody_releases_what_another_holds(cluster: FakeCluster, clock: Clock) -> None:
    controller(cluster, clock).take(["node1"])
    controller(cluster, clock, "b").release("node1")
    assert cluster.leases["node1"].holder == "a"


def test_a_lease_that_a_person_deletes_is_free(cluster: FakeCluster, clock: Clock) -> None:
    controller(cluster, clock).take(["node1"])
    del cluster.leases["node1"]
    assert controller(cluster, clock, "b").take(["node1"]) == {}


def test_of_two_that_take_a_node_at_once_one_has_it(cluster: FakeCluster, clock: Clock) -> None:
    first, second = controller(cluster, clock), controller(cluster, clock, "b")
    second.take([])  # it has looked, and saw no Lease
    first.take(["node1"])
    assert second.take(["node1"]) == {"node1": OTHER}
    assert cluster.leases["node1"].holder == "a"


def test_leases_are_looked_at_seldom(cluster: FakeCluster, clock: Clock) -> None:
    leases = controller(cluster, clock)
    for _ in range(100):
        leases.take(["node1", "node2"])
    assert [call for call, _ in cluster.calls].count("node_leases") == 1


@pytest.fixture
def second(cluster: FakeCluster, clock: Clock) -> Iterator[KubernetesLauncher]:
    cluster.node_list = [Node("node1", True, True, "b"), Node("node2", True, True, "b")]
    settings = replace(SETTINGS, namespace="elsewhere")
    made = KubernetesLauncher(cluster, settings, SimulatedDevices(2), monotonic_s=clock)
    made.take_nodes_as("b")
    yield made
    made.close()


def test_a_launcher_sees_no_gpus_on_a_node_of_another_controller(
    cluster: FakeCluster, clock: Clock, second: KubernetesLauncher
) -> None:
    controller(cluster, clock).take(["node1"])
    held, free = asyncio.run(second.hosts())
    assert (held.gpus, held.shown, held.closed) == ((), (), OTHER)
    assert (len(free.gpus), free.closed) == (2, "")
    assert cluster.leases["node2"].who == "controller c1 of namespace elsewhere"


def test_a_node_is_released_only_when_no_pod_of_ours_is_there(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launcher.take_nodes_as("a")
    asyncio.run(launcher.hosts())
    launch(launcher)
    assert not asyncio.run(launcher.release("node1"))
    assert cluster.leases["node1"].holder == "a"
    cluster.be(NAME, phase="Succeeded")
    cluster.node_list = [replace(cluster.node_list[0], ready=False)]
    assert not asyncio.run(launcher.release("node1")), "what a silent node runs is not known"
    cluster.node_list = [replace(cluster.node_list[0], ready=True)]
    assert asyncio.run(launcher.release("node1"))
    assert cluster.leases["node1"].holder == ""


def test_the_name_of_a_lease_is_valid_and_its_node_s_own() -> None:
    assert naming.node_lease_name("node1") == "reshape-node-node1"
    long = [f"{'n' * 252}{end}" for end in "ab"]
    names = {naming.node_lease_name(node) for node in long}
    assert len(names) == 2
    assert all(len(name) <= naming.OBJECT_CHARS_MAX for name in names)
