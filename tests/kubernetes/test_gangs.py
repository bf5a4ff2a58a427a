"""A gang on two real nodes: its pods in a reshape, its releases by node, the loss of a node."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reshape_launcher.spec import HostShare, LaunchError, LaunchSpec, ReleaseCheck
from reshape_sidecar.wire import Mode, Phase
from tests.kubernetes import cgroups, cluster, network
from tests.kubernetes.grounds import Grounds
from tests.kubernetes.layout import NODES, Node
from tests.kubernetes.namespace import Namespace
from tests.kubernetes.namespace import eventually as after_a_while
from tests.kubernetes.pod_bed import PodBed
from tests.support import training_programs as programs
from tests.support.sidecar_bed import DEVICES, bed, eventually

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900)]


class GangBed(PodBed):
    """One job of two workers, each on a node of its own with four simulated GPUs."""

    def gang(self) -> LaunchSpec:
        first, second, *_ = self.nodes = [
            host.name for host in asyncio.run(self.kubernetes.hosts())
        ]
        shares = (HostShare(first, 1, DEVICES), HostShare(second, 1, DEVICES))
        spec = self.spec(programs.PLAIN, workers=2, host=first)
        return replace(spec, shares=shares)

    def begun(self) -> None:
        """Launch it, and wait until both workers are initialised."""
        self.coordinator.want(Mode.SAVE_AND_STOP)
        self.launch(self.gang())

        def both() -> bool:
            reports = self.coordinator.reports
            return {seen.worker for seen in reports if seen.phase is Phase.INITIALIZED} == {0, 1}

        eventually("both workers initialised", both)

    def trains(self, size: int) -> int:
        """Have each worker train on so many GPUs, by a new process; the generation."""
        peers = tuple(self.addresses)
        generation = self.coordinator.want(Mode.RUN, *DEVICES[:size], peers=peers)

        def both() -> bool:
            seen = [s for s in self.coordinator.reports if s.generation == generation and s.pid]
            return {s.worker for s in seen if len(s.devices) == size} == {0, 1}

        eventually(f"both train on {size}", both)
        return generation

    @property
    def addresses(self) -> list[str]:
        """The newest address of each worker."""
        newest = {s.worker: s.address for s in self.coordinator.reports if s.address}
        return [newest[worker] or "" for worker in sorted(newest)]

    def released(self, generation: int, node: str) -> ReleaseCheck:
        look = ("job-1", 1, generation, DEVICES)
        return asyncio.run(self.kubernetes.check_release(*look, node))

    def running(self) -> dict[str | None, bool]:
        """By node, whether what is there of the gang runs."""
        return {one.host: one.running for one in asyncio.run(self.launcher.containers())}


@pytest.fixture
def gang(namespace: Namespace, tmp_path: Path) -> Iterator[GangBed]:
    with bed(tmp_path, lambda path: GangBed(path, namespace)) as made:
        assert isinstance(made, GangBed)
        made.begun()
        yield made


def test_a_gang_is_reshaped_down_and_up_in_its_living_pods_on_both_nodes(gang: GangBed) -> None:
    before = {pod.name: pod.node for pod in gang.pods()}
    assert sorted(before.values()) == sorted(gang.nodes), "a pod on each node"
    assert len({address.split(":")[0] for address in gang.addresses}) == 2
    assert gang.coordinator.refused == 0, "each worker has its own token"
    four = gang.trains(2)
    assert all(not gang.released(four, node).empty for node in gang.nodes)
    two = gang.trains(1)
    assert all(gang.released(four, node).empty for node in gang.nodes), "their old processes ended"
    assert all(not gang.released(two, node).empty for node in gang.nodes)
    again = gang.trains(2)
    assert all(gang.released(two, node).empty for node in gang.nodes)
    assert {pod.name: pod.node for pod in gang.pods()} == before
    assert gang.running() == dict.fromkeys(gang.nodes, True)
    pids = {(s.worker, s.generation): s.pid for s in gang.coordinator.reports if s.pid}
    assert len({pids[0, each] for each in (four, two, again)}) == 3, "other processes, same pods"
    gang.remove()
    assert gang.running() == dict.fromkeys(gang.nodes, False)


def test_the_pod_of_one_node_ends_and_the_other_runs_until_it_is_removed(gang: GangBed) -> None:
    first, second = gang.nodes
    (lost,) = [pod for pod in gang.pods() if pod.node == second]
    gang.api.delete_pod(lost.name, 1)
    after_a_while("its end is seen", lambda: gang.running() == {first: True, second: False})
    gang.remove()
    assert gang.running() == {first: False, second: False}


@pytest.mark.parametrize(
    ("lose", "find"),
    [(cgroups.kill, cluster.start_node), (network.cut, network.join)],
    ids=["without power", "cut off"],
)
def test_what_is_on_a_lost_node_counts_as_running_and_the_rest_of_the_gang_can_end(
    gang: GangBed,
    own_cluster: Grounds,
    lose: Callable[[Node], None],
    find: Callable[[Node], None],
) -> None:
    generation = gang.trains(2)
    first, second = gang.nodes
    node = next(node for node in NODES if node.name == second)
    lose(node)
    try:
        with pytest.raises(OSError, match=r"."):
            gang.released(generation, second)
        assert not gang.released(generation, first).empty, "its own node answers"
        asyncio.run(gang.kubernetes.remove("job-1", 1, 0.0, (first,)))
        assert gang.running() == {first: False, second: True}, "its processes may live"
        assert gang.released(generation, first).empty
    finally:
        find(node)
    after_a_while("the node is back", lambda: cluster.ready()[node.name])
    after_a_while("what was there has ended", lambda: _removed(gang))
    assert gang.running() == {first: False, second: False}


def _removed(gang: GangBed) -> bool:
    """Ask for the end again; true once all is gone (a node that came back may take its time)."""
    with contextlib.suppress(LaunchError):
        gang.remove(grace_s=0.0)
        return True
    return False
