"""A watch says when to list Jobs and pods, and never what there is."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from reshape_launcher.kubernetes import change_signal
from reshape_launcher.kubernetes.change_signal import KINDS, ChangeSignal
from reshape_launcher.kubernetes.gpus import SimulatedDevices
from reshape_launcher.kubernetes.launcher import LIST_EVERY_S, KubernetesLauncher
from reshape_launcher.kubernetes.values import KubernetesError
from reshape_launcher.spec import ContainerStatus
from tests.support.fake_cluster import FakeCluster
from tests.unit.launcher.pod_launches import NAME, Clock, launch, one
from tests.unit.launcher.test_kubernetes_manifests import SETTINGS, SPEC


class Server:
    """Watches whose changes a test gives."""

    def __init__(self) -> None:
        self.said: dict[str, queue.Queue[bool]] = {kind: queue.Queue() for kind in KINDS}
        self.opened = 0

    def changes(self, kind: str, selector: str) -> Iterator[None]:
        self.opened += 1
        yield None
        while self.said[kind].get():
            yield None
        raise KubernetesError(f"{kind} cannot be watched", 0, "cut")


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    for kind in KINDS:
        made.said[kind].put(False)


def until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 20.0
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.005)


def quiet(signal: ChangeSignal) -> bool:
    return not signal.take() and not signal.take()


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_may_have_changed_only_while_both_watches_are_open_and_silent(
    server: Server, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_signal, "PAUSE_MIN_S", 0.3)
    signal = ChangeSignal(server, "a=b")
    assert signal.take(), "no watch is open yet"
    until(lambda: quiet(signal))
    server.said[kind].put(True)
    until(signal.take)
    until(lambda: quiet(signal))
    signal.mark()
    assert signal.take()
    assert not signal.take()
    server.said[kind].put(False)
    until(signal.take)
    assert signal.take(), "one watch is cut: each look lists"
    until(lambda: quiet(signal))
    assert server.opened == 3
    signal.close()


class Silent(ChangeSignal):
    """Watches that are open; a test says what changed."""

    def __init__(self) -> None:
        self.changed = True

    def take(self) -> bool:
        changed, self.changed = self.changed, False
        return changed

    def mark(self) -> None:
        self.changed = True

    def close(self) -> None:
        pass


class World:
    """A launcher whose watches say nothing by themselves."""

    def __init__(self) -> None:
        self.cluster, self.clock, self.signal = FakeCluster(), Clock(), Silent()
        self.launcher = KubernetesLauncher(
            self.cluster,
            SETTINGS,
            SimulatedDevices(2),
            monotonic_s=self.clock,
            changes=self.signal,
        )

    def lists(self) -> int:
        return sum(call == "pods" for call, _ in self.cluster.calls)

    def look(self) -> ContainerStatus:
        return one(self.launcher)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    launch(made.launcher)
    made.cluster.be(NAME, phase="Running", started=True, node="node1")
    made.look()
    yield made
    made.launcher.close()


def test_pods_that_run_are_listed_after_a_change_and_each_ten_seconds(world: World) -> None:
    before = world.lists()
    for _ in range(5):
        assert world.look().running
    assert world.lists() == before
    world.signal.mark()
    world.look()
    assert world.lists() == before + 1
    world.clock.now_s += LIST_EVERY_S
    world.look()
    assert world.lists() == before + 2


def test_a_launch_is_in_the_next_look_before_any_watch_tells_of_it(world: World) -> None:
    launch(world.launcher, replace(SPEC, job="second-000001"))
    found = {status.job for status in asyncio.run(world.launcher.containers())}
    assert "second-000001" in found, "else its container would count as lost"


@pytest.mark.parametrize(
    "change",
    [
        {"phase": "Pending", "started": False},
        {"deletion_grace_s": 30},
        {"trouble": "ErrImagePull: no"},
    ],
    ids=["not up yet", "is ending", "in trouble"],
)
def test_a_pod_that_is_on_its_way_is_listed_at_each_look(
    world: World, change: dict[str, object]
) -> None:
    world.cluster.be(NAME, **change)
    world.signal.mark()
    world.look()
    before = world.lists()
    world.look()
    world.look()
    assert world.lists() == before + 2


def test_a_suspended_job_is_listed_at_each_look(world: World) -> None:
    world.cluster.seen_jobs[NAME] = replace(world.cluster.seen_jobs[NAME], suspended=True)
    world.signal.mark()
    world.look()
    before = world.lists()
    world.look()
    assert world.lists() == before + 1


def test_a_list_that_failed_is_repeated(world: World) -> None:
    world.signal.mark()
    world.cluster.refuse = {"pods": 500}
    with pytest.raises(OSError, match="refused"):
        world.look()
    world.cluster.refuse = {}
    world.cluster.be(NAME, phase="Failed", exit_code=1)
    assert not world.look().running
