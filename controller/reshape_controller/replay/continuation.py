"""The future of a running controller's jobs: its state, continued in virtual time.

Does: take over the state as a restarted controller does, with every container where the state has
it, and run it to the end under a policy, with additional hosts or GPUs, or without a host. Speeds,
lengths and costs of the world are the controller's estimates. It does not touch the controller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from reshape_controller.core import events as ev
from reshape_controller.core.engine import Engine
from reshape_controller.core.knowledge import Measured
from reshape_controller.core.model import (
    GpuId,
    HostId,
    Job,
    JobId,
    JobState,
    Mechanism,
    Stage,
)
from reshape_controller.core.plan import Policy
from reshape_controller.core.profile_book import ProfileBook
from reshape_controller.core.state import State
from reshape_controller.replay.container import Container, Life
from reshape_controller.replay.event_queue import ticks_up
from reshape_controller.replay.ground_truth import JobTruth, Truth
from reshape_controller.replay.inputs import (
    Cluster,
    Costs,
    HostSpec,
    ReplayError,
    WorkJob,
    Workload,
)
from reshape_controller.replay.metrics import JobResult, job_rows
from reshape_controller.replay.shell import LIMITS, Scene, Shell
from reshape_controller.scheduling.predictor import Predictor
from reshape_profiles.schema import COSTS, Overhead
from reshape_sidecar.wire import Phase

_HOLDS = (Stage.TRAINING, Stage.SAVING)
"""Stages in which a training process makes steps."""


@dataclass(frozen=True, slots=True)
class QueueChange:
    """Conditions of the continuation. ``more_gpus``: on each host; ``hosts``: additional ones."""

    policy: Policy
    mechanism: Mechanism
    hosts: tuple[HostSpec, ...] = ()
    more_gpus: int = 0
    drained: tuple[HostId, ...] = ()


@dataclass(frozen=True, slots=True)
class UnfinishedJob:
    """A job that does not end, and the reason."""

    job: JobId
    reason: str


@dataclass(frozen=True, slots=True)
class Continuation:
    """The result. Times of ``rows`` are Unix seconds, as in the state."""

    now_s: float
    rows: tuple[JobResult, ...]
    left: tuple[UnfinishedJob, ...]
    assumed: tuple[JobId, ...]
    """Jobs of unknown length, which are assumed to need another hour's training on one GPU."""

    @property
    def makespan_s(self) -> float:
        """Time from now to the end of the last job that ends."""
        return max((row.finished_s - self.now_s for row in self.rows), default=0.0)

    @property
    def mean_end_s(self) -> float:
        """Mean time from now to the end of a job."""
        return fmean(row.finished_s - self.now_s for row in self.rows) if self.rows else 0.0


@dataclass(frozen=True, slots=True)
class _Work:
    """Steps of a job, and an estimate of the steps done by now (reports lag behind)."""

    steps: int
    done: int


@dataclass(slots=True)
class _Believed(JobTruth):
    """A job with the controller's estimates as its step times, its own measurements included."""

    measured: tuple[Measured, ...] = ()

    def _step_s(self, gpu_type: str, gpus: int, hosts: int) -> float:
        kind, book, batch = self.spec.job_type, self.book, self.spec.global_batch
        if self.measured:
            return book.seconds_of_job(kind, self.measured, gpu_type, gpus, hosts, batch)
        step_s = book.seconds_per_step(kind, gpu_type, gpus, hosts)
        return step_s * book.batches(kind, batch)


def continue_queue(parts: Sequence[str], change: QueueChange, at_s: float = 0.0) -> Continuation:
    """Continue a state of ``State.dump`` from ``at_s`` on, and return the result.

    The state's own time is that of its last event, which may be long ago. Raises ReplayError,
    CodecError.
    """
    state = State.load(tuple(parts))
    state.now_s = max(state.now_s, at_s)
    halted = [job for job in state.jobs.values() if _is_halted(job)]
    for job in halted:
        state.drop_job(job)
    state.ended.clear()
    state.drain_changes()
    ended = {
        job.id for job in state.jobs.values() if job.state.terminal
    }  # only their containers remain
    if not state.jobs.keys() - ended:
        raise ReplayError("the controller has no unfinished job that could run")
    now_s = ticks_up(state.now_s)
    works, assumed = _works(state)
    shell = _shell(state, change, now_s)
    reports = _adopt(shell, state, works)
    epoch, drains = state.epoch + 1, [ev.HostDrained(host, "replay") for host in change.drained]
    started = ev.ControllerStarted(epoch, change.policy.name, change.mechanism, LIMITS, state.seed)
    shell.round([started, *_additions(state, change)], now_s)
    shell.world.carry_out(shell.engine.outstanding(), shell.engine.desired)
    shell.round([*reports, *drains], now_s)
    shell.run_on(now_s)
    left = [UnfinishedJob(job.id, job.reason or job.state.value) for job in halted]
    unfinished = [job for job in shell.engine.state.jobs.values() if job.id not in ended]
    left += [UnfinishedJob(job.id, job.reason) for job in unfinished]
    rows = tuple(row for row in job_rows(shell.account) if row.job not in ended)
    return Continuation(now_s, rows, tuple(left), assumed)


def _is_halted(job: Job) -> bool:
    return job.state is JobState.HALTED and job.stage is Stage.NONE


def _works(state: State) -> tuple[dict[JobId, _Work], tuple[JobId, ...]]:
    """Return the predicted work of every job, and the jobs of unknown length."""
    snapshot = Engine(state).snapshot()
    predictor, works, assumed = Predictor(snapshot), {}, []
    views = {view.id: view for view in (*snapshot.queued, *snapshot.running)}
    for job in state.jobs.values():
        view, done = views.get(job.id), job.progress.step
        if view is None:
            works[job.id] = _Work(max(1, done), done)
            continue
        left = predictor.remaining_steps(view)
        total = predictor.total_steps(view)
        if total is None:
            assumed.append(job.id)
            total = done + left
        steps = max(1, done, round(total))
        works[job.id] = _Work(steps, min(steps, max(done, int(steps - left))))
    return works, tuple(assumed)


def _shell(state: State, change: QueueChange, now_s: float) -> Shell:
    specs = [replace(job.spec, name=str(job.id)) for job in state.jobs.values()]
    jobs = tuple(WorkJob(0.0, spec) for spec in specs)
    hosts = [HostSpec(host.id, host.gpu_type, len(host.gpus)) for host in state.hosts.values()]
    scene = Scene(
        Workload("the present queue", jobs),
        Cluster("the controller's", (*hosts, *change.hosts)),
        _costs(state),
        (),
        Truth(state.profiles, seed=state.seed, spread=0.0),
    )
    shell = Shell(scene, change.policy, change.mechanism, state.seed)
    shell.engine, shell.refits = Engine(state, explains=shell.keep), None
    shell.account.since_s = shell.world.now_s = now_s
    return shell


def _costs(state: State) -> Costs:
    """Return the current mean estimates of the costs of starts, saves and stops."""
    book: ProfileBook = state.profiles
    known = [book.overhead(job.spec.job_type) for job in state.jobs.values()]
    means = {name: fmean(getattr(one, name) for one in known) for name in COSTS}
    return Costs(
        "as the controller believes", Overhead(**means, source="learned by the controller")
    )


def _adopt(shell: Shell, state: State, works: dict[JobId, _Work]) -> list[ev.Event]:
    """Give the world every existing container; return the reports of their SideCars."""
    reports = []
    for job in state.jobs.values():
        work, per_epoch = works[job.id], job.progress.steps_per_epoch
        truth = _Believed(
            job.spec, work.steps, per_epoch, 1.0, state.profiles, measured=job.measured
        )
        life = shell.world.lives[job.id] = Life(truth, saved_step=work.done)
        if job.stage in (Stage.NONE, Stage.LAUNCHING) or job.host is None:
            continue
        reports.append(shell.world.adopt(_container(state, job, job.host, life, shell.world.now_s)))
    return reports


def _container(state: State, job: Job, host: HostId, life: Life, now_s: float) -> Container:
    hosts = job.all_hosts if job.hosts else ()
    container = Container(job.id, job.attempt, host, state.hosts[host].gpu_type, life, hosts)
    container.epoch, container.generation, container.sequence = (
        state.epoch,
        job.generation,
        job.sequence,
    )
    container.phase, container.step, container.at_s = Phase.INITIALIZED, life.saved_step, now_s
    if job.stage in _HOLDS and job.gpus:
        container.phase, container.devices = Phase.RUNNING, job.gpus
        gpu_type, size = container.gpu_type, len(job.gpus)
        container.step_s = life.truth.step_s(gpu_type, size, len(job.all_hosts))
    elif job.stage is Stage.STOPPING:
        container.stopped_generation = job.generation
    if job.stage in (Stage.SAVING, Stage.STARTING):
        container.generation -= 1  # the SideCar does not know the request yet
    return container


def _additions(state: State, change: QueueChange) -> list[ev.Event]:
    """Return events for additional hosts and GPUs."""
    events: list[ev.Event] = []
    if change.more_gpus:
        for host in tuple(state.hosts.values()):
            more = tuple(GpuId(f"{host.id}-more-{number}") for number in range(change.more_gpus))
            events.append(ev.HostAdded(host.id, host.gpu_type, more))
    events += [ev.HostAdded(host.id, host.gpu_type, host.gpu_ids()) for host in change.hosts]
    return events
