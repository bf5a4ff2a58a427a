"""Random interleavings of two SideCars with zygotes and successors: what must never happen.

Each container has the real ``converge`` and the real init over processes in memory
(``fake_kernel``). Safety after every event: a job has one process that trains, only that publishes,
it has the devices of its generation, and no device is held by two jobs. Liveness: once nothing
fails any more, each job trains on what it shall have.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from reshape_sidecar import limits
from reshape_sidecar.contract import ENV_GENERATION
from reshape_sidecar.init.values import (
    Spawn,
    Sweep,
)
from reshape_sidecar.wire import (
    EXIT_SAVED,
    Desired,
    Mode,
    OnSaveTimeout,
    OutcomeKind,
    PrepareStage,
)
from tests.support.fake_container import Container
from tests.support.fake_kernel import Kernel, Process, Role
from tests.support.gate import examples

GPUS = ("g0", "g1", "g2", "g3")
JOBS = ("a", "b")
HEAL_ROUNDS_MAX = 400
Devices = tuple[str, ...]


class World:
    """Two jobs on four GPUs, and the part of the controller that gives and takes them."""

    def __init__(self, kernel: Kernel, folder: Path) -> None:
        self.kernel = kernel
        self.folder = folder
        self.attempts = dict.fromkeys(JOBS, 0)
        self.containers: dict[str, Container] = {}
        self.desired: dict[str, Desired] = {}
        self.owned: dict[str, set[str]] = {job: set() for job in JOBS}
        self.published = dict.fromkeys(JOBS, (0, 0))
        """Attempt and generation of the newest checkpoint of a job."""
        self.launch("a", GPUS)
        self.launch("b", ())

    def launch(self, job: str, devices: Devices) -> None:
        self.attempts[job] += 1
        attempt = self.attempts[job]
        folder = self.folder / f"{job}-{attempt}"
        self.containers[job] = Container(self.kernel, job, attempt, folder)
        mode = Mode.RUN if devices else Mode.SAVE_AND_STOP
        self.desired[job] = Desired(1, job, attempt, 1, mode, devices)
        self.owned[job] = set(devices)

    def want(self, job: str, devices: Devices, **fields: object) -> None:
        """Order ``devices``, which the job owns until it is known to have left others."""
        old = self.desired[job]
        mode = Mode.RUN if devices else Mode.SAVE_AND_STOP
        changes = {"generation": old.generation + 1, "prepare": None} | fields
        wanted = replace(old, mode=mode, devices=devices, **changes)  # type: ignore[arg-type]
        self.desired[job] = wanted
        self.owned[job] |= set(devices)

    def settled(self, job: str) -> bool:
        """Return whether the agent has answered the newest generation, and note what it left."""
        memory, desired = self.containers[job].memory, self.desired[job]
        if memory.desired is None or memory.generation != desired.generation:
            return False
        if memory.outcome is None or memory.outcome.generation != desired.generation:
            return False
        if memory.outcome.kind is OutcomeKind.REFUSED:
            if memory.devices != desired.devices:
                self.want(job, memory.devices)
                return False
            return True
        if memory.stopped_generation < desired.generation:
            return False
        self.owned[job] = set(desired.devices)
        return True

    def check(self) -> None:
        holders: dict[str, str] = {}
        for job, container in self.containers.items():
            trains = container.processes(Role.TRAINING)
            assert len(trains) <= 1, f"{job} has two processes that train"
            for process in trains:
                self._check_training(job, container, process)
                for device in process.devices:
                    assert holders.setdefault(device, job) == job, f"two jobs hold {device}"
                    assert device in self.owned[job], f"{job} does not own {device}"

    def _check_training(self, job: str, container: Container, process: Process) -> None:
        training = container.init._status.training
        assert training is not None
        assert training.pid == process.pid, "init knows of another process"
        assert int(process.env[ENV_GENERATION]) == training.generation
        started = container.memory.started_generation
        assert training.generation <= started, "its start is persisted before it begins"
        if training.generation == started:
            wanted = frozenset(container.memory.devices)
            assert process.devices == wanted, "it has the devices of its generation"

    # --- events; each returns at once if it is not possible now

    def init(self, job: str, number: int) -> None:
        self.containers[job].run()

    def agent(self, job: str, number: int) -> None:
        self.containers[job].act()

    def agent_dies_before_it_asks(self, job: str, number: int) -> None:
        self.containers[job].act(sends=False)
        self.containers[job].agent_dies()

    def agent_dies_after_it_asked(self, job: str, number: int) -> None:
        self.containers[job].act()
        self.containers[job].agent_dies()

    def deliver(self, job: str, number: int) -> None:
        container, desired = self.containers[job], self.desired[job]
        if not container.processes(Role.AGENT) or container.memory.desired == desired:
            return
        old, memory = container.memory.desired, container.memory
        if old is None or old.generation < desired.generation:
            memory = replace(memory, learned_at_s=self.kernel.now_s)
        container.memory = replace(memory, desired=desired)

    def shrink(self, job: str, number: int) -> None:
        devices = self.desired[job].devices
        if self.settled(job) and devices:
            how = (OnSaveTimeout.KILL, OnSaveTimeout.REFUSE)[number % 2]
            self.want(job, devices[: number % len(devices)], on_save_timeout=how)

    def shrink_to_prepared(self, job: str, number: int) -> None:
        prepare = self.desired[job].prepare
        if self.settled(job) and prepare and set(prepare) <= self.owned[job]:
            self.want(job, prepare)

    def grow(self, job: str, number: int) -> None:
        if self.settled(job):
            taken = set().union(*self.owned.values())
            free = tuple(gpu for gpu in GPUS if gpu not in taken)
            self.want(job, (*self.desired[job].devices, *free))

    def take_back(self, job: str, number: int) -> None:
        """Order the devices of before, although the newest order is not answered."""
        memory = self.containers[job].memory
        if memory.devices and set(memory.devices) <= self.owned[job]:
            self.want(job, memory.devices)

    def prepare(self, job: str, number: int) -> None:
        devices = self.desired[job].devices
        if devices:
            self.desired[job] = replace(
                self.desired[job], prepare=devices[: 1 + number % len(devices)]
            )

    def prepare_nothing(self, job: str, number: int) -> None:
        self.desired[job] = replace(self.desired[job], prepare=None)

    def zygote_is_ready(self, job: str, number: int) -> None:
        for process in self.containers[job].processes(Role.ZYGOTE):
            self.kernel.say(process, ready=True)

    def zygote_serves(self, job: str, number: int) -> None:
        for process in self.containers[job].processes(Role.ZYGOTE):
            self.kernel.serve(process)

    def zygote_is_unfit(self, job: str, number: int) -> None:
        for process in self.containers[job].processes(Role.ZYGOTE):
            self.kernel.say(process, off="two threads")
            self.kernel.leave(process, 0)

    def waiting_listens(self, job: str, number: int) -> None:
        for process in self.containers[job].processes(Role.FORK, Role.SUCCESSOR):
            self.kernel.listen(process)

    def successor_reports(self, job: str, number: int) -> None:
        stages = (PrepareStage.READY, PrepareStage.EFFECT_BARRIER, PrepareStage.SCRIPT)
        for process in self.containers[job].processes(Role.SUCCESSOR):
            self.kernel.report(process, stages[number % len(stages)])

    def successor_fails(self, job: str, number: int) -> None:
        for process in self.containers[job].processes(Role.SUCCESSOR):
            self.kernel.report(process, PrepareStage.FAILED)
            self.kernel.leave(process, 1)

    def publish(self, job: str, number: int) -> None:
        for process in self.containers[job].processes(Role.TRAINING):
            newest = (self.attempts[job], int(process.env[ENV_GENERATION]))
            assert newest >= self.published[job], "an older process publishes"
            self.published[job] = newest

    def save_and_leave(self, job: str, number: int) -> None:
        for process in self.containers[job].processes(Role.TRAINING):
            if process.asked:
                self.publish(job, number)
                self.kernel.leave(process)

    def crash(self, job: str, number: int) -> None:
        for process in self.containers[job].processes(Role.TRAINING):
            self.kernel.leave(process, 1)

    def restart(self, job: str, number: int) -> None:
        """Start a job again whose process has ended by itself."""
        memory = self.containers[job].memory
        ended = memory.ended
        if not self.settled(job) or ended is None or ended.exit_code == EXIT_SAVED:
            return
        if ended.generation != memory.started_generation:
            return
        assert memory.outcome is not None
        trained_on = memory.outcome.kind is OutcomeKind.REFUSED
        if trained_on or ended.generation == memory.generation:
            self.want(job, self.desired[job].devices)

    def kill_agent(self, job: str, number: int) -> None:
        self.containers[job].agent_dies()

    def late_requests(self, job: str, number: int) -> None:
        self.containers[job].serve_late()

    def kill_zygote(self, job: str, number: int) -> None:
        self._kill(job, Role.ZYGOTE)

    def kill_fork(self, job: str, number: int) -> None:
        self._kill(job, Role.FORK)

    def kill_successor(self, job: str, number: int) -> None:
        self._kill(job, Role.SUCCESSOR)

    def kill_training(self, job: str, number: int) -> None:
        self._kill(job, Role.TRAINING)

    def kill_init(self, job: str, number: int) -> None:
        """End a container, and start the next attempt on what the job shall have."""
        container = self.containers[job]
        self.kernel.kill(container.process)
        assert container.processes(*Role) == []
        container.close()
        self.launch(job, self.desired[job].devices)

    def _kill(self, job: str, role: Role) -> None:
        for process in self.containers[job].processes(role):
            self.kernel.kill(process)

    def wait(self, job: str, number: int) -> None:
        self.kernel.now_s += (0.5, limits.ZYGOTE_ANSWER_S, 15.0)[number % 3]

    # --- the end

    def heal(self) -> None:
        """Let everything take its course; afterwards each job trains on what it shall have."""
        steps = (
            self.init, self.deliver, self.agent, self.waiting_listens, self.zygote_is_ready,
            self.zygote_serves, self.successor_reports, self.save_and_leave, self.restart,
        )  # fmt: skip
        for _ in range(HEAL_ROUNDS_MAX):
            for job in JOBS:
                for step in steps:
                    step(job, 0)
                    self.check()
            self.kernel.now_s += 0.5
            if all(map(self._at_rest, JOBS)):
                return
        raise AssertionError([(self.desired[job], self.containers[job].memory) for job in JOBS])

    def _at_rest(self, job: str) -> bool:
        if not self.settled(job):
            return False
        trains = self.containers[job].processes(Role.TRAINING)
        return {d for process in trains for d in process.devices} == set(self.desired[job].devices)


COURSE = (
    "init", "init", "agent", "agent", "agent", "deliver", "waiting_listens", "zygote_serves",
    "zygote_is_ready", "successor_reports", "save_and_leave", "restart", "wait",
)  # fmt: skip
ORDERS = ("shrink", "shrink_to_prepared", "grow", "take_back", "prepare", "prepare")
FAULTS = (
    "agent_dies_before_it_asks", "agent_dies_after_it_asked", "crash", "kill_agent", "kill_fork",
    "kill_init", "kill_successor", "kill_training", "kill_zygote", "late_requests", "late_requests",
    "prepare_nothing", "publish", "successor_fails", "zygote_is_unfit",
)  # fmt: skip
EVENTS = COURSE * 6 + ORDERS * 3 + FAULTS
BEGINNINGS = ("nothing", "forking", "overtaken", "preparing", "prepared", "asked", "saved")
Step = tuple[str, str, int]
"""An event, the job that it is about, and a number that varies it."""
STEPS = st.lists(
    st.tuples(st.sampled_from(EVENTS), st.sampled_from(JOBS), st.integers(0, 5)),
    min_size=10,
    max_size=100,
)


def begin(world: World, beginning: str) -> None:
    """Bring job a into the state from which the events go on."""
    if beginning == "nothing":
        return
    if beginning in ("forking", "overtaken"):
        while not world.containers["a"].init._forking:
            for event in (world.init, world.zygote_is_ready, world.deliver, world.agent):
                event("a", 0)
        if beginning == "overtaken":
            world.want("a", GPUS[:1])
            for event in (world.deliver, world.agent, world.agent):
                event("a", 0)
        return
    world.heal()
    world.prepare("a", 1)
    for event in (world.deliver, world.agent, world.init):
        event("a", 0)
    if beginning == "preparing":
        assert world.containers["a"].processes(Role.SUCCESSOR, Role.FORK) == []
        return
    for event in (world.zygote_serves, world.init, world.waiting_listens):
        event("a", 0)
    for event in (world.successor_reports, world.init):
        event("a", 0)
    assert len(world.containers["a"].processes(Role.SUCCESSOR)) == 1
    if beginning != "prepared":
        world.want("a", GPUS[:2])
        for event in (world.deliver, world.agent, world.init):
            event("a", 0)
        assert [one.asked for one in world.containers["a"].processes(Role.TRAINING)] == [True]
    if beginning == "saved":
        world.save_and_leave("a", 0)


FORK_AND_ZYGOTE_AT_ONCE: list[Step] = [
    *7 * [("init", "a", 0)],
    ("zygote_serves", "a", 0),
    ("zygote_is_ready", "a", 0),
    ("kill_fork", "a", 0),
]
"""Init finds the end of a fork, which ends the zygote, and a message of the zygote at once."""


@contextlib.contextmanager
def two_jobs() -> Iterator[World]:
    """Yield a world at its begin; close it afterwards."""
    kernel = Kernel()
    with tempfile.TemporaryDirectory() as folder, kernel.in_place():
        world = World(kernel, Path(folder))
        try:
            yield world
        finally:
            for container in world.containers.values():
                container.close()


def play(beginning: str, steps: Iterable[Step]) -> None:
    """Let the steps happen after a beginning, then let all come to rest; check on the way."""
    with two_jobs() as world:
        begin(world, beginning)
        for event, job, number in steps:
            getattr(world, event)(job, number)
            world.check()
        world.heal()


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(beginning=st.sampled_from(BEGINNINGS), steps=STEPS)
@example(beginning="forking", steps=FORK_AND_ZYGOTE_AT_ONCE)
def test_one_process_trains_one_publishes_and_no_gpu_is_held_by_two_jobs(
    beginning: str, steps: list[Step]
) -> None:
    play(beginning, steps)


@pytest.mark.parametrize("spared", [False, True])
def test_a_sweep_spares_the_successor_of_its_generation_alone(spared: bool) -> None:
    with two_jobs() as world:
        begin(world, "prepared")
        container = world.containers["a"]
        prepared = container.init._status.prepared
        assert prepared is not None
        number = prepared.number if spared else None
        container.requests.append(Sweep(2, limits.LEFTOVER_GRACE_S, number))
        container.run()
        (process,) = container.processes(Role.SUCCESSOR)
        assert process.asked is not spared
        assert [one.asked for one in container.processes(Role.TRAINING)] == [True]
        assert len(container.processes(Role.ZYGOTE)) == 1


def test_a_start_that_a_later_sweep_has_overtaken_never_begins() -> None:
    with two_jobs() as world:
        container = world.containers["a"]
        while not (container.requests and isinstance(container.requests[0], Spawn)):
            for event in (world.init, world.zygote_is_ready, world.deliver, world.agent):
                event("a", 0)
        container.agent_dies()
        world.want("a", GPUS[:1])
        while not world.settled("a"):
            world.wait("a", 0)
            for event in (world.init, world.deliver, world.agent):
                event("a", 0)
        world.late_requests("a", 0)
        for event in (world.zygote_serves, world.init, world.waiting_listens):
            event("a", 0)
            world.check()
        assert container.processes(Role.FORK, Role.TRAINING) == []
