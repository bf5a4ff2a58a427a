"""A small world for tests of the engine: what launchers, SideCars and training would do.

Does: answers the engine's commands as a launcher and SideCars would, in virtual time, with knobs
for everything that can go wrong, and keeps its own account of which process is on which GPU, so
that two jobs on one GPU are seen even if the ledger does not know. Never: looks into the engine
for its answers.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field

from reshape_controller.core import events as ev
from reshape_controller.core import invariants
from reshape_controller.core.commands import CheckRelease, Command, Launch, Remove, SetDesired
from reshape_controller.core.engine import Engine
from reshape_controller.core.limits import LOCAL, Limits
from reshape_controller.core.model import (
    GpuId,
    GpuState,
    HostId,
    Job,
    JobId,
    JobSpec,
    Length,
    LengthUnit,
    Mechanism,
    Stage,
)
from reshape_controller.core.plan import Plan, Preemption, Target
from reshape_controller.core.record import HistoryEntry
from reshape_controller.core.states import PreemptionReason
from reshape_sidecar import codec
from reshape_sidecar.wire import Desired, Mode, Phase
from tests.support.container import Container, Knobs

HOST = HostId("host-0")


@dataclass
class World:
    """The engine and everything around it. ``now_s`` is the only clock."""

    mechanism: Mechanism = Mechanism.SIDECAR
    limits: Limits = LOCAL
    engine: Engine = field(default_factory=Engine)
    now_s: float = 0.0
    containers: dict[tuple[JobId, int], Container] = field(default_factory=dict)
    log: list[tuple[str, ...]] = field(default_factory=list)
    """Every event and plan with its commands, as JSON, in order: the log."""
    kinds: list[str] = field(default_factory=list)
    """Kinds of all history entries."""
    texts: list[str] = field(default_factory=list)
    """Texts of all history entries."""
    history: list[HistoryEntry] = field(default_factory=list)
    new_containers: dict[JobId, Knobs] = field(default_factory=dict)
    """Knobs that a job's next containers start with."""
    auto: bool = True
    """Answer at once whatever can be answered."""
    dirty_gpus: set[GpuId] = field(default_factory=set)
    """GPUs on which something of their last owner still runs."""
    verified: list[ev.ReleaseVerified] = field(default_factory=list)
    """Every release that was verified; true for ever, but only of its own generation."""
    held: list[Command] = field(default_factory=list)
    """Commands whose effect is held back while ``effects`` is False (the controller is dead)."""
    effects: bool = True
    asked: dict[tuple[str, int, int], tuple[Mode, tuple[str, ...]]] = field(default_factory=dict)
    """Mode and GPUs by job, attempt and generation."""
    one_host: dict[JobId, HostId | None] = field(default_factory=dict)
    """Jobs whose files can be reached from one host only: the first that they get, once known."""

    # --- talking to the engine

    def event(self, event: ev.Event) -> None:
        """Give the engine one event and carry out what it commands."""
        step = self.engine.step(event, self.now_s)
        self._done("event", codec.dumps(event), step.commands)
        self.kinds += [entry.kind for entry in step.history]
        self.texts += [entry.text for entry in step.history]
        self.history += step.history

    def plan(
        self,
        *targets: tuple[str, int],
        about: str | None = None,
        host: str = HOST,
        preempts: PreemptionReason | None = None,
    ) -> None:
        """Apply a plan that gives each named job the size."""
        plan = Plan(
            tuple(Target(JobId(job), size, HostId(host)) for job, size in targets),
            "test",
            about=JobId(about) if about else None,
            preemption=Preemption(preempts) if preempts is not None else None,
        )
        self.apply(plan)

    def apply(self, plan: Plan) -> None:
        step = self.engine.apply(plan, self.now_s)
        self._done("plan", codec.dumps(plan), step.commands)
        self.kinds += [entry.kind for entry in step.history]
        self.texts += [entry.text for entry in step.history]
        self.history += step.history

    def _done(self, what: str, text: str, commands: tuple[Command, ...]) -> None:
        at = repr(self.now_s)
        self.log.append((what, at, text, *(codec.dumps(command) for command in commands)))
        self.check()
        for command in commands:
            if isinstance(command, SetDesired):
                self._check_desired(command.desired)
            if self.effects:
                self.carry_out(command)
            else:
                self.held.append(command)
        if self.auto:
            self.settle()

    def _check_desired(self, desired: Desired) -> None:
        """A generation has one mode and one set of GPUs, whatever it repeats; and a successor is
        asked for in a generation that is in effect."""
        key, wish = (
            (desired.job, desired.attempt, desired.generation),
            (
                desired.mode,
                desired.devices,
            ),
        )
        known = self.asked.get(key)
        assert known in (None, wish), f"{key} was {known} and is {wish}"
        assert desired.prepare is None or known is not None, f"{key} begins with a successor"
        self.asked[key] = wish

    def check(self) -> None:
        """The ledger agrees with itself, no two jobs have a process on one GPU, and a GPU with a
        process is never another's or nobody's to have."""
        invariants.check(self.engine.state)
        on: dict[str, JobId] = {}
        for container in self.containers.values():
            files = self.one_host.get(container.job)
            assert files in (None, container.host), f"{container.job} is not where its files are"
            for gpu in container.running:
                other = on.setdefault(gpu, container.job)
                assert other == container.job, f"{gpu} is used by {other} and {container.job}"
                found = self.engine.state.gpus[GpuId(gpu)]
                out_of_reach = found.state in (GpuState.LOST, GpuState.QUARANTINED)
                theirs = out_of_reach or found.owner == container.job
                assert theirs, f"{gpu} is {found.state}, and {container.job} runs on it"

    # --- the launcher and the SideCars

    def carry_out(self, command: Command) -> None:
        match command:
            case Launch(_, job, attempt, host):
                if (job, attempt) not in self.containers:
                    self._launch(job, attempt, host)
            case SetDesired(desired):
                container = self.containers.get((JobId(desired.job), desired.attempt))
                if container is not None:
                    container.wanted = desired
            case Remove(_, job, attempt, _):
                if (job, attempt) in self.containers:
                    self.kill_container(str(job), attempt)
                else:
                    self.event(ev.ContainerGone(job, attempt))
            case CheckRelease():
                pass

    def _launch(self, job: JobId, attempt: int, host: HostId) -> None:
        if job in self.one_host:
            files = self.one_host[job] = self.one_host[job] or host
            self.event(ev.FilesFound(job, attempt, files, f"its files are on {files}"))
            if files != host:
                return
        knobs = self.new_containers.get(job, {})
        self.containers[job, attempt] = Container(job, attempt, host, **knobs)

    def settle(self, rounds: int = 50) -> None:
        """Let every SideCar converge and report, and every release be looked at."""
        for _ in range(rounds):
            before = len(self.log)
            auto, self.auto = self.auto, False
            for key in list(self.containers):
                if key in self.containers:
                    self.converge(self.containers[key])
            self.verify()
            self.auto = auto
            if len(self.log) == before:
                return
        raise AssertionError("the world does not come to rest")

    def settle_until(self, name: str, stage: Stage) -> None:
        """Let SideCars converge, one step each in turn, until the job has come to ``stage``."""
        for _ in range(20):
            for key in list(self.containers):
                if self.job(name).stage is stage:
                    return
                if key in self.containers:
                    self.converge(self.containers[key])
        raise AssertionError(f"{name} is {self.job(name).stage}")

    def converge(self, c: Container) -> None:
        """One SideCar takes up its desired state as far as it can, and reports what changed."""
        if not c.reachable:
            return
        before = dataclasses.replace(c)
        desired = self.engine.desired(c.job)
        if desired is not None and desired.attempt != c.attempt:
            desired = None
        leaves = c.converge(desired)
        if c != before:
            self.report(c)
        if leaves:
            self.kill_container(str(c.job), c.attempt)

    def report(self, c: Container) -> None:
        c.sequence += 1
        if c.mute:
            return
        self.event(ev.SideCarReported(c.observed()))

    def verify(self) -> None:
        """Look at every GPU that is being released, as the launcher would."""
        for gpu in list(self.engine.state.gpus.values()):
            if gpu.verify_by_s is None or gpu.owner is None:
                continue
            container = self.containers.get((gpu.owner, gpu.attempt))
            runs = container is not None and gpu.id in container.running
            runs = runs and container is not None and container.running_generation <= gpu.generation
            if runs or gpu.id in self.dirty_gpus:
                continue
            seen = ev.ReleaseVerified(gpu.owner, gpu.attempt, gpu.generation, (gpu.id,))
            self.verified.append(seen)
            self.event(seen)

    def kill_container(self, job: str, attempt: int | None = None, code: int = 137) -> None:
        """The container is gone, and the launcher sees it."""
        key = self._key(job, attempt)
        if key is None:
            return
        del self.containers[key]
        self.event(ev.ContainerGone(key[0], key[1], code))

    def suspend(self, job: str, reason: str = "suspended by a test") -> None:
        """Another controller ends the container's processes and lets none start."""
        key = self._key(job, None)
        if key is not None:
            del self.containers[key]
        attempt = self.job(job).attempt
        self.event(ev.ContainerSuspended(self.job(job).id, attempt, reason))

    def admit(self, job: str) -> None:
        """The other controller lets the container start, in the same attempt."""
        known = self.job(job)
        assert known.host is not None
        made = Container(known.id, known.attempt, known.host, sequence=known.sequence)
        self.containers[known.id, known.attempt] = made
        self.event(ev.ContainerAdmitted(known.id, known.attempt))

    def _key(self, job: str, attempt: int | None) -> tuple[JobId, int] | None:
        keys = [k for k in self.containers if k[0] == job and attempt in (None, k[1])]
        return max(keys, key=lambda key: key[1]) if keys else None

    def container(self, job: str) -> Container:
        key = self._key(job, None)
        assert key is not None, f"{job} has no container"
        return self.containers[key]

    # --- what happens in a test

    def boot(self, gpus: int = 4, hosts: int = 1, epoch: int = 1) -> World:
        self.event(ev.ControllerStarted(epoch, "test", self.mechanism, self.limits))
        for host in range(hosts):
            ids = tuple(GpuId(f"GPU-{host}-{number}") for number in range(gpus))
            self.event(ev.HostAdded(HostId(f"host-{host}"), "V100", ids))
        return self

    def submit(self, name: str, *sizes: int, **fields: object) -> None:
        spec = JobSpec(name, ("python", "train.py"), sizes, Length(LengthUnit.EPOCHS, 1.0))
        spec = dataclasses.replace(spec, **fields)  # type: ignore[arg-type]
        # It may have the id of a job that has ended.
        self.asked = {key: wish for key, wish in self.asked.items() if key[0] != name}
        self.event(ev.JobSubmitted(JobId(name), spec))

    def running(self, name: str, size: int, *sizes: int, **fields: object) -> None:
        """Submit a job and bring it to train on ``size`` GPUs."""
        self.submit(name, *sizes, **fields)
        self.plan((name, size))
        assert self.job(name).stage.value == "training", self.job(name)

    def finish(self, name: str) -> None:
        """Training of the job ends by itself with exit code 0."""
        c = self.container(name)
        c.phase, c.running, c.exit_code, c.saved_step = Phase.FINISHED, (), 0, c.step
        self.report(c)

    def crash(self, name: str, code: int = 1) -> None:
        c = self.container(name)
        c.phase, c.running, c.exit_code = Phase.CRASHED, (), code
        c.error = f"exit code {code}"
        self.report(c)

    def train(self, name: str, steps: int) -> None:
        c = self.container(name)
        c.step += steps
        self.report(c)

    def save_deadline_passes(self, name: str) -> None:
        """The SideCar's own save deadline is over: it refuses or kills, as it was told."""
        c = self.container(name)
        c.deadline_passed = True
        self.converge(c)
        c.deadline_passed = False
        self.settle()

    def wait(self, seconds: float) -> None:
        """Let time pass; every deadline on the way is carried out at its time."""
        end = self.now_s + seconds
        while True:
            due = self.engine.next_deadline_s()
            if due is None or due > end:
                break
            self.now_s = max(self.now_s, due)
            self.event(ev.DeadlinesDue())
        self.now_s = end

    def entries(self, kind: str) -> list[HistoryEntry]:
        """The history's entries of a kind, oldest first."""
        return [entry for entry in self.history if entry.kind == kind]

    def job(self, name: str) -> Job:
        """The job; also one that has ended."""
        state = self.engine.state
        found = state.jobs.get(JobId(name)) or state.ended.get(JobId(name))
        assert found is not None, f"no job {name}"
        return found

    def gpu_states(self) -> list[str]:
        return [gpu.state.value for gpu in self.engine.state.gpus.values()]

    def replay(self) -> list[tuple[str, ...]]:
        """Feed the log to a fresh engine; gives its log."""
        engine = Engine()
        out = []
        for what, at, text, *_ in self.log:
            if what == "event":
                event = codec.from_value(ev.Event, json.loads(text))
                step = engine.step(event, float(at))
            else:
                step = engine.apply(codec.loads(Plan, text), float(at))
            commands = [codec.dumps(command) for command in step.commands]
            out.append((what, at, text, *commands))
        return out
