"""Hosts that a launcher finds by itself: what is concluded from a look, and what is not."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.engine import Engine
from reshape_controller.core.model import (
    GpuId,
    HostId,
    JobId,
    JobSpec,
    Length,
    LengthUnit,
    Mechanism,
    Share,
    Spans,
)
from reshape_controller.core.plan import Plan, Target
from reshape_controller.live.hosts import HostWatch
from reshape_launcher.spec import (
    ContainerStatus,
    HostSeen,
    LaunchSpec,
    OneHost,
    RecordRefused,
    ReleaseCheck,
)

HOST = HostSeen("node1", "simulated", ("sim-node1-0", "sim-node1-1"), boot="boot-1")
OTHER = HostSeen("node2", "simulated", ("sim-node2-0",), boot="boot-2")


@dataclass
class World:
    """Hosts, containers and a clock; what is posted is taken by an engine at once."""

    hosts_seen: list[HostSeen] = field(default_factory=lambda: [HOST, OTHER])
    running: list[ContainerStatus] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    removed: list[tuple[str, int, tuple[str, ...]]] = field(default_factory=list)
    now_s: float = 0.0
    engine: Engine = field(default_factory=Engine)
    fails: bool = False

    def __post_init__(self) -> None:
        self.posted: list[ev.Event] = []
        self.restart()

    def restart(self) -> None:
        """Another controller, on the same log."""
        self.watch = HostWatch(self, self, self.post, lambda: self.now_s)

    def post(self, event: ev.Event) -> None:
        self.posted.append(event)
        self.engine.step(event, self.now_s)

    def look(self, after_s: float = 2.0) -> list[ev.Event]:
        self.now_s += after_s
        self.posted = []
        asyncio.run(self.watch.check(self.engine.state))
        return self.posted

    async def hosts(self) -> tuple[HostSeen, ...]:
        if self.fails:
            raise OSError("no answer")
        return tuple(self.hosts_seen)

    async def release(self, host: str) -> bool:
        self.released.append(host)
        return True

    async def containers(self) -> tuple[ContainerStatus, ...]:
        return tuple(self.running)

    def refusals(self, spec: LaunchSpec) -> tuple[RecordRefused, ...]:
        return ()

    async def one_host(self, spec: LaunchSpec) -> OneHost | None:
        return None

    async def remove(
        self, job: str, attempt: int, grace_s: float, hosts: tuple[str, ...] = ()
    ) -> None:
        self.removed.append((job, attempt, hosts))

    def no_gang(self) -> RecordRefused | None:
        return None

    async def launch(self, spec: LaunchSpec, token: str) -> None:
        raise AssertionError("nothing is launched here")

    async def check_release(
        self, job: str, attempt: int, generation: int, devices: tuple[str, ...], host: str = ""
    ) -> ReleaseCheck:
        raise AssertionError("no release is looked at here")

    def log_path(self, job: str, attempt: int) -> str | None:
        return None


@pytest.fixture
def world() -> World:
    made = World()
    made.look()
    return made


def kinds(events: list[ev.Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def test_a_host_is_added_once_and_again_when_it_has_more_gpus(world: World) -> None:
    assert set(world.engine.state.hosts) == {"node1", "node2"}
    assert world.look() == []
    world.hosts_seen[0] = replace(HOST, gpus=(*HOST.gpus, "sim-node1-2"))
    assert kinds(world.look()) == ["HostAdded"]
    assert world.look() == []


def test_a_gpu_that_a_host_does_not_show_any_more_is_lost_until_it_does(world: World) -> None:
    first, second = HOST.gpus
    world.hosts_seen[0] = replace(HOST, shown=HOST.gpus)
    assert world.look() == []
    world.hosts_seen[0] = replace(HOST, shown=(first,))
    assert world.look() == [ev.GpusSeen(HostId("node1"), (GpuId(first),))]
    assert world.engine.state.gpus[GpuId(second)].state.value == "lost"
    assert world.look() == []
    world.hosts_seen[0] = HOST
    assert world.look() == [], "nobody could look, so nothing is concluded"
    world.hosts_seen[0] = replace(HOST, shown=(), ready=False)
    assert world.look() == []
    world.hosts_seen[0] = replace(HOST, shown=HOST.gpus)
    assert kinds(world.look()) == ["GpusSeen"]
    assert world.engine.state.gpus[GpuId(second)].state.value == "idle"


def test_a_host_without_gpus_is_not_added_and_one_that_has_some_in_the_ledger_stays() -> None:
    world = World(hosts_seen=[replace(HOST, gpus=())])
    assert world.look() == []
    world.hosts_seen[0] = HOST
    assert kinds(world.look()) == ["HostAdded"]
    world.hosts_seen[0] = replace(HOST, gpus=(), gpu_type="")
    assert world.look() == []
    assert world.look(3600.0) == [], "its GPUs are not known now; the host is there"


def test_a_host_that_is_not_ready_is_not_added() -> None:
    world = World(hosts_seen=[replace(HOST, ready=False)])
    assert world.look() == []
    assert world.engine.state.hosts == {}


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "not ready"])
def test_a_host_is_silent_only_after_its_deadline_and_that_is_said_once(
    world: World, gone: bool
) -> None:
    world.hosts_seen = [OTHER] if gone else [replace(HOST, ready=False), OTHER]
    assert kinds(world.look()) == (["HostClosed"] if gone else [])
    assert world.look(119.0) == []
    assert kinds(world.look(2.0)) == ["HostFellSilent"]
    assert world.look(200.0) == []


def test_a_short_silence_is_no_silence(world: World) -> None:
    world.hosts_seen[0] = replace(HOST, ready=False)
    world.look(100.0)
    world.hosts_seen[0] = HOST
    assert world.look(100.0) == []
    world.hosts_seen[0] = replace(HOST, ready=False)
    assert world.look(100.0) == []


def silent(world: World) -> None:
    world.hosts_seen[0] = replace(HOST, ready=False)
    world.look()
    world.look(121.0)
    assert not world.engine.state.hosts[HostId("node1")].present


def test_a_host_that_is_back_gives_its_gpus_back_once_nothing_of_ours_is_left(
    world: World,
) -> None:
    silent(world)
    world.hosts_seen[0] = HOST
    world.running = [ContainerStatus("a-1", 1, True, host="node1")]
    assert world.look() == []
    assert world.removed == [("a-1", 1, ("node1",))], "of a gang only what is there"
    world.running = [ContainerStatus("b-1", 1, True, host="node2")]
    assert kinds(world.look()) == ["HostCleaned"]
    assert world.look() == []


def test_another_boot_is_evidence_that_nothing_of_before_runs(world: World) -> None:
    world.hosts_seen[0] = replace(HOST, boot="boot-9")
    assert kinds(world.look()) == ["HostCleaned"]
    assert world.look() == []


def test_cordoning_drains_and_taking_it_back_undrains(world: World) -> None:
    world.hosts_seen[0] = replace(HOST, schedulable=False)
    assert kinds(world.look()) == ["HostDrained"]
    assert world.look() == []
    world.hosts_seen[0] = HOST
    assert kinds(world.look()) == ["HostUndrained"]


def test_a_cordon_that_ends_while_the_controller_is_down_is_over_at_its_start(
    world: World,
) -> None:
    world.hosts_seen[0] = replace(HOST, schedulable=False)
    world.look()
    world.restart()
    assert world.look() == [], "it is cordoned still"
    world.hosts_seen[0] = HOST
    world.restart()
    assert kinds(world.look()) == ["HostUndrained"]
    assert world.look() == []


def test_the_end_of_a_cordon_leaves_what_an_operator_drained(world: World) -> None:
    cordoned = replace(HOST, schedulable=False)
    for first, then in ((HOST, cordoned), (cordoned, cordoned)):
        world.hosts_seen[0] = first
        world.look()
        world.post(ev.HostDrained(HostId("node1"), "ada"))
        world.hosts_seen[0] = then
        assert world.look() == []
        world.hosts_seen[0] = HOST
        assert world.look() == []
        world.post(ev.HostUndrained(HostId("node1"), "ada"))


def test_what_an_operator_undrained_is_not_drained_again_by_the_same_cordon(world: World) -> None:
    world.hosts_seen[0] = replace(HOST, schedulable=False)
    world.look()
    world.post(ev.HostUndrained(HostId("node1"), "ada"))
    assert world.look() == []


def test_what_an_operator_drained_is_not_undrained_by_a_look(world: World) -> None:
    world.post(ev.HostDrained(HostId("node1"), "ada"))
    assert world.look() == []
    assert world.engine.state.hosts[HostId("node1")].drained


def test_from_hosts_that_cannot_be_seen_nothing_is_concluded(world: World) -> None:
    world.fails = True
    for _ in range(3):
        with pytest.raises(OSError, match="no answer"):
            world.look(100.0)
    world.fails = False
    assert world.look() == []


def test_a_host_that_takes_no_pods_is_closed_at_once_and_lost_only_by_its_own_deadline(
    world: World,
) -> None:
    world.hosts_seen = [replace(HOST, ready=False, closed="its node is not ready")]
    assert world.look() == [
        ev.HostClosed(HostId("node1"), "its node is not ready", answers=False),
        ev.HostClosed(HostId("node2"), "its node is not in the cluster", answers=False),
    ]
    assert world.look() == []
    silent_s = world.engine.state.limits.host_silent_s
    world.look(silent_s - 3)
    assert world.look(2.0) == [
        ev.HostFellSilent(HostId("node1"), "its node is not ready for 121 s"),
        ev.HostFellSilent(HostId("node2"), "its node is no longer in the cluster for 121 s"),
    ]


def test_a_tainted_host_is_closed_and_opened_again(world: World) -> None:
    world.hosts_seen = [replace(HOST, closed="a taint"), OTHER]
    assert world.look() == [ev.HostClosed(HostId("node1"), "a taint", answers=True)]
    world.hosts_seen = [HOST, OTHER]
    assert world.look() == [ev.HostOpened(HostId("node1"))]


def test_a_host_that_is_not_ours_any_more_is_released_once_nothing_is_used_there(
    world: World,
) -> None:
    world.hosts_seen = [OTHER]
    world.look()
    assert world.released == [], "the engine closes it first"
    world.look()
    world.look()
    assert world.released == ["node1"]
    world.hosts_seen = [HOST, OTHER]
    world.look()
    world.hosts_seen = [OTHER]
    world.look()
    world.look()
    assert world.released == ["node1", "node1"]


def test_a_host_with_a_job_is_not_released(world: World) -> None:
    spec = JobSpec("a", ("python", "train.py"), (2,), Length(LengthUnit.EPOCHS, 1.0))
    world.engine.step(ev.ControllerStarted(1, "test", Mechanism.SIDECAR), 0.0)
    world.engine.step(ev.JobSubmitted(JobId("a"), spec), 0.0)
    world.engine.apply(Plan((Target(JobId("a"), 2, HostId("node1")),), "test"), 0.0)
    world.hosts_seen = [OTHER]
    world.look()
    world.look()
    assert world.released == []


def test_a_host_with_a_later_worker_of_a_gang_is_not_released_before_its_attempt_is_gone(
    world: World,
) -> None:
    spec = JobSpec("a", ("python", "train.py"), (2,), workers=2, span=Spans.ANY)
    shares = (Share(HostId("node1"), 1), Share(HostId("node2"), 1))
    target = Target(JobId("a"), 2, HostId("node1"), shares)
    world.engine.step(ev.ControllerStarted(1, "test", Mechanism.SIDECAR), 0.0)
    world.engine.step(ev.JobSubmitted(JobId("a"), spec), 0.0)
    world.engine.apply(Plan((target,), "test"), 0.0)
    world.engine.step(ev.CancelRequested(JobId("a")), 0.0)  # its containers have to end yet
    world.hosts_seen = [HOST]
    for _ in range(3):
        world.look()
    assert world.released == []
    world.engine.step(ev.ContainerGone(JobId("a"), 1), world.now_s)
    world.look()
    assert world.released == ["node2"]
