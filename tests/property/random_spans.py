"""Random plans with gangs: jobs of two or three workers, on one host or on several.

What holds for every plan (``random_plans``) holds here too. A container is the whole attempt here,
with a part on each of its hosts; the launcher removes the parts on hosts that answer, and the
others run on until their host is cleaned. ``python -m tests.property.random_spans SEEDS`` tries
many (``seeds``).
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field

from reshape_controller.core import events as ev
from reshape_controller.core import gang
from reshape_controller.core.commands import CheckRelease, Command, Launch, Remove, SetDesired
from reshape_controller.core.model import (
    GpuId,
    GpuState,
    HostId,
    JobId,
    Mechanism,
    Share,
    Spans,
    Stage,
)
from reshape_controller.core.plan import Plan, Preemption, Target
from reshape_controller.core.states import PreemptionReason
from reshape_sidecar.wire import Mode, OnSaveTimeout
from tests.property import random_plans, seeds
from tests.property.random_plans import RandomPlans
from tests.property.test_handover import RARELY
from tests.support.container import Container
from tests.support.world import World

JOBS = ("a", "b", "c", "d")
HOSTS = ("host-0", "host-1", "host-2")
GPUS = 4
KINDS: tuple[tuple[int, tuple[int, ...], Spans], ...] = (
    (2, (2, 4, 8), Spans.ANY),
    (2, (4, 8), Spans.IF_NEEDED),
    (3, (3, 6, 12), Spans.ANY),
    (3, (6, 12), Spans.IF_NEEDED),
    (1, (1, 2, 4), Spans.NEVER),
    (2, (2, 4), Spans.NEVER),
)
"""Workers, sizes and span of a job."""


@dataclass
class SpanWorld(World):
    """A world whose containers may have parts on several hosts. A release is verified only if the
    engine has asked for it, and on the host that it has named."""

    parts: dict[tuple[JobId, int], tuple[HostId, ...]] = field(default_factory=dict)
    """Host of each worker, by job and attempt."""
    silent: dict[HostId, None] = field(default_factory=dict)
    left: list[Container] = field(default_factory=list)
    """What still runs of ended attempts on silent hosts."""
    checks: dict[tuple[JobId, int, int, GpuId], None] = field(default_factory=dict)
    broken: dict[tuple[JobId, int], None] = field(default_factory=dict)
    """Attempts that have lost a host: what is left of them is not heard again."""
    grants: int = 0
    """Starts of training on several hosts."""

    def carry_out(self, command: Command) -> None:
        if isinstance(command, Launch):
            hosts = gang.hosts_of_shares(command.shares) or (command.host,)
            self.parts[command.job, command.attempt] = hosts
        if isinstance(command, CheckRelease):
            looked_at = {self.engine.state.gpus[gpu].host for gpu in command.gpus}
            assert len(looked_at) == 1, f"one look at {len(looked_at)} hosts: {command}"
            for gpu in command.gpus:
                self.checks[command.job, command.attempt, command.generation, gpu] = None
        if isinstance(command, SetDesired) and command.desired.mode is Mode.RUN:
            self._check_start(command)
        if isinstance(command, Remove):
            self._leave_silent_parts((command.job, command.attempt))
        super().carry_out(command)

    def _check_start(self, command: SetDesired) -> None:
        """A gang starts with equally many GPUs for each worker, each worker's on its own host."""
        desired = command.desired
        hosts = self.parts.get((JobId(desired.job), desired.attempt), ())
        if len(set(hosts)) < 2:
            return
        self.grants += 1
        each, rest = divmod(len(desired.devices), len(hosts))
        assert each, f"{len(desired.devices)} GPUs for {len(hosts)} workers"
        assert not rest, f"{len(desired.devices)} GPUs for {len(hosts)} workers"
        for number, gpu in enumerate(desired.devices):
            at, on = self.engine.state.gpus[GpuId(gpu)].host, hosts[number // each]
            assert at == on, (
                f"worker {number // each} of {desired.job} is on {on}: {gpu} is on {at}"
            )

    def _leave_silent_parts(self, key: tuple[JobId, int]) -> None:
        container = self.containers.get(key)
        if container is None:
            return
        gpus = self.engine.state.gpus
        away = tuple(gpu for gpu in container.running if gpus[GpuId(gpu)].host in self.silent)
        if away:
            rest = Container(container.job, container.attempt, container.host, running=away)
            self.left.append(rest)

    def verify(self) -> None:
        for gpu in list(self.engine.state.gpus.values()):
            if gpu.verify_by_s is None or gpu.owner is None or gpu.id in self.dirty_gpus:
                continue
            if (gpu.owner, gpu.attempt, gpu.generation, gpu.id) not in self.checks:
                continue
            container = self.containers.get((gpu.owner, gpu.attempt))
            runs = container is not None and gpu.id in container.running
            if runs and container is not None and container.running_generation <= gpu.generation:
                continue
            seen = ev.ReleaseVerified(gpu.owner, gpu.attempt, gpu.generation, (gpu.id,))
            self.verified.append(seen)
            self.event(seen)

    def check(self) -> None:
        super().check()
        state = self.engine.state
        for rest in self.left:
            for gpu in rest.running:
                found = state.gpus[GpuId(gpu)].state
                assert found is GpuState.LOST, f"{gpu} is {found.value}, and something runs on it"
        for job in state.jobs.values():
            gone = [host for host in job.all_hosts if host in self.silent]
            ends = job.stage in (Stage.ENDING, Stage.NONE)
            assert ends or not gone, f"{job.id} lives on without {gone}"
            if job.stage.has_gpus and job.hosts:
                held = {state.gpus[gpu].host for gpu in job.gpus}
                assert held == set(job.hosts) or ends, f"{job.id} has GPUs on {held} of {job.hosts}"


class RandomSpans(RandomPlans):
    """Random plans over three hosts, with gangs."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        mechanism = rng.choice((Mechanism.SIDECAR, Mechanism.SIDECAR, Mechanism.TERMINATE))
        self.world: SpanWorld = SpanWorld(mechanism=mechanism)
        self.world.boot(gpus=GPUS, hosts=len(HOSTS))
        self.world.auto = False

    def begin_gang(self) -> None:
        """Job a trains on all of two hosts and shall give half of each to b, which is launched."""
        world, shares = self.world, (Share(HostId("host-0"), 1), Share(HostId("host-1"), 1))
        for name, size in (("a", 8), ("b", 4)):
            world.auto = name == "a"
            world.submit(name, 4, 8, workers=2, span=Spans.ANY, min_runtime_s=0.0)
            targets = [Target(JobId(name), size, HostId("host-0"), shares)]
            if name == "b":
                targets.append(Target(JobId("a"), 4, HostId("host-0"), shares))
            world.apply(Plan(tuple(targets), "test"))
        world.auto = False
        self.check_requests()  # of the scene itself: a may save when it is asked

    def run(self) -> None:
        if self.rng.random() < 0.5:
            self.begin_gang()
        super().run()

    def act(self, what: str, job: str, number: int) -> None:
        if what in RARELY and number % 3 == 0:
            what = "host_silent"
        super().act(what, job, number)
        if self.world.effects and not self.world.held:
            for gpu in self.world.engine.state.gpus.values():
                key = (gpu.owner, gpu.attempt, gpu.generation, gpu.id)
                looks = gpu.state is not GpuState.RELEASING or key in self.world.checks
                assert looks, f"no look at {gpu.id}, which {gpu.owner} has left"

    def heard(self, job: str, number: int) -> None:
        super().heard(job, number)
        for key in self.world.broken:
            if key in self.world.containers:
                self.world.containers[key].reachable = False

    def submit(self, job: str, number: int) -> None:
        if JobId(job) in self.world.engine.state.jobs:
            return
        self.notes.pop(JobId(job), None)
        self.world.verified = [each for each in self.world.verified if each.job != job]
        self.delayed = [each for each in self.delayed if each.job != job]
        workers, sizes, span = KINDS[number % len(KINDS)]
        self.world.submit(
            job,
            *sizes,
            workers=workers,
            span=span,
            priority=number % 3,
            min_runtime_s=0.0,
            on_save_timeout=OnSaveTimeout.KILL if number % 4 == 0 else OnSaveTimeout.REFUSE,
        )

    def _random_plan(self) -> Plan:
        rng, state = self.rng, self.world.engine.state
        trains = [job for job in state.jobs.values() if job.stage is Stage.TRAINING]
        shrinks = rng.sample(trains, rng.randint(0, min(2, len(trains))))
        targets = []
        for job in shrinks:
            assert job.host is not None
            size = rng.choice((0, *job.spec.optional_gpus))
            shares = gang.shares_of(job.hosts) if size and rng.random() < 0.95 else ()
            targets.append(Target(job.id, size, job.host, shares))
        receivers = [job for job in state.jobs.values() if job not in shrinks]
        if receivers and rng.random() < 0.85:
            targets.insert(0, self._receiver(rng.choice(receivers).id))
        reason = rng.choice((None, PreemptionReason.PRIORITY))
        why = Preemption(reason) if reason is not None else None
        about = targets[0].job if targets else None
        return Plan(tuple(targets), "random", about=about, preemption=why, notes=self._notes())

    def _receiver(self, name: JobId) -> Target:
        """A target for a job: where it is, or on hosts drawn for each worker; some are wrong."""
        rng, job = self.rng, self.world.engine.state.jobs[name]
        size = rng.choice(job.spec.optional_gpus)
        if job.host is not None and rng.random() < 0.5:
            return Target(name, size, job.host, gang.shares_of(job.hosts))
        drawn = [HostId(rng.choice(HOSTS)) for _ in range(job.spec.workers)]
        shares = gang.shares_of(drawn)
        if rng.random() < 0.05:
            shares = (*shares, Share(HostId(rng.choice(HOSTS)), rng.randint(0, 2)))
        return Target(name, size, shares[0].host, shares if len(shares) > 1 else ())

    def host_silent(self, job: str, number: int) -> None:
        host = HostId(HOSTS[number % len(HOSTS)])
        self.world.silent[host] = None
        for key, container in self.world.containers.items():
            if host in self.world.parts[key]:
                container.reachable = False
                self.world.broken[key] = None
        self.world.event(ev.HostFellSilent(host, "chaos"))
        self._drop_silent_attempts()

    def _drop_silent_attempts(self) -> None:
        """Attempts of which no host answers are out of the launcher's sight; they run on there."""
        world = self.world
        for key in [k for k in world.containers if all(h in world.silent for h in world.parts[k])]:
            world._leave_silent_parts(key)
            del world.containers[key]

    def host_cleaned(self, job: str, number: int) -> None:
        """A host begins anew: what ran there is gone, and with it the attempts that had a part."""
        host = HostId(HOSTS[number % len(HOSTS)])
        world, state = self.world, self.world.engine.state
        on_host = set(state.hosts[host].gpus)
        for key in [k for k in world.containers if host in world.parts[k]]:
            container = world.containers[key]
            container.running = tuple(gpu for gpu in container.running if gpu not in on_host)
            container.reachable = False
            world.broken[key] = None
            if set(world.parts[key]) == {host}:
                del world.containers[key]
        for rest in world.left:
            rest.running = tuple(gpu for gpu in rest.running if gpu not in on_host)
        world.left = [rest for rest in world.left if rest.running]
        world.dirty_gpus -= on_host
        world.silent.pop(host, None)
        world.event(ev.HostCleaned(host, "chaos"))

    def heal(self) -> None:
        for number, host in enumerate(HOSTS):
            self.world.event(ev.HostUndrained(HostId(host)))
            if HostId(host) in self.world.silent:
                self.host_cleaned("a", number)
            shown = self.world.engine.state.hosts[HostId(host)].gpus
            self.world.event(ev.GpusSeen(HostId(host), shown))
        super().heal()


def run(seed: int) -> int:
    """Try one seed. Returns the number of starts on several hosts."""
    chaos = RandomSpans(random.Random(seed))
    chaos.run()
    return chaos.world.grants


if __name__ == "__main__":
    command = "tests.property.random_spans"
    sys.exit(seeds.main(command, run, "starts on several hosts", random_plans.prepare))
