"""What becomes of the jobs of a running controller: its state, continued in virtual time.

Does: takes the state over as a controller does that is started again, on a world in which every
container is where the state says, and runs it to the end under a policy, with hosts or GPUs more
or a host less. The world is as the controller believes it: speeds, lengths and costs. Never:
touches the controller, or knows better than it. State: none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from reshape_controller.core import events as ev
from reshape_controller.core.engine import Engine
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
from reshape_controller.core.profile_book import Measured, ProfileBook
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
from reshape_controller.replay.metrics import JobRow, job_rows
from reshape_controller.replay.shell import LIMITS, Scene, Shell
from reshape_controller.scheduling.predictor import Predictor
from reshape_profiles.schema import COSTS, Overhead
from reshape_sidecar.wire import Phase

_HOLDS = (Stage.TRAINING, Stage.SAVING)
"""Stages in which a training process makes steps."""


@dataclass(frozen=True, slots=True)
class QueueChange:
    """Under what it goes on. ``more_gpus``: on each host; ``hosts``: more of them."""

    policy: Policy
    mechanism: Mechanism
    hosts: tuple[HostSpec, ...] = ()
    more_gpus: int = 0
    drained: tuple[HostId, ...] = ()


@dataclass(frozen=True, slots=True)
class Left:
    """A job that does not end, and why."""

    job: JobId
    reason: str


@dataclass(frozen=True, slots=True)
class Continued:
    """What came of it. Times of ``rows`` are Unix seconds, as those of the state."""

    now_s: float
    rows: tuple[JobRow, ...]
    left: tuple[Left, ...]
    assumed: tuple[JobId, ...]
    """Jobs of which nobody knows the length: taken to be an hour's training on one GPU more."""

    @property
    def makespan_s(self) -> float:
        """From now until the last job that ends has ended."""
        return max((row.finished_s - self.now_s for row in self.rows), default=0.0)

    @property
    def mean_end_s(self) -> float:
        """Mean time from now until a job ends."""
        return fmean(row.finished_s - self.now_s for row in self.rows) if self.rows else 0.0


@dataclass(frozen=True, slots=True)
class _Work:
    """Steps of a job, and how many are done by now: reports lag behind."""

    steps: int
    done: int


@dataclass(slots=True)
class _Believed(JobTruth):
    """A job whose steps take what the controller believes, its own measurements included."""

    measured: tuple[Measured, ...] = ()

    def _step_s(self, gpu_type: str, gpus: int) -> float:
        kind, book = self.spec.job_type, self.book
        if self.measured:
            return book.seconds_of_job(kind, self.measured, gpu_type, gpus)
        return book.seconds_per_step(kind, gpu_type, gpus) * book.batches(
            kind, self.spec.global_batch
        )


def continued(parts: Sequence[str], what: QueueChange, at_s: float = 0.0) -> Continued:
    """Continue the state that ``State.dump`` gave, from ``at_s`` on: its own time is that of its
    last event, which may be long ago where jobs report nothing. Raises ReplayError, CodecError."""
    state = State.load(tuple(parts))
    state.now_s = max(state.now_s, at_s)
    halted = [job for job in state.jobs.values() if _rests(job)]
    for job in halted:
        state.drop_job(job)
    state.ended.clear()
    state.drain_changes()
    over = {job.id for job in state.jobs.values() if job.state.terminal}  # their containers end yet
    if not state.jobs.keys() - over:
        raise ReplayError("the controller has no unfinished job that could run")
    now_s = ticks_up(state.now_s)
    works, assumed = _works(state)
    shell = _shell(state, what, now_s)
    reports = _adopt(shell, state, works)
    epoch, drains = state.epoch + 1, [ev.HostDrained(host, "replay") for host in what.drained]
    started = ev.ControllerStarted(epoch, what.policy.name, what.mechanism, LIMITS, state.seed)
    shell.round([started, *_more(state, what)], now_s)
    shell.world.carry_out(shell.engine.outstanding(), shell.engine.desired)
    shell.round([*reports, *drains], now_s)
    shell.run_on(now_s)
    left = [Left(job.id, job.reason or job.state.value) for job in halted]
    there = [job for job in shell.engine.state.jobs.values() if job.id not in over]
    left += [Left(job.id, job.reason) for job in there]
    rows = tuple(row for row in job_rows(shell.account) if row.job not in over)
    return Continued(now_s, rows, tuple(left), assumed)


def _rests(job: Job) -> bool:
    return job.state is JobState.HALTED and job.stage is Stage.NONE


def _works(state: State) -> tuple[dict[JobId, _Work], tuple[JobId, ...]]:
    """The work of every job as it is predicted now, and the jobs of which nobody knows it."""
    seen = Engine(state).snapshot()
    predictor, found, assumed = Predictor(seen), {}, []
    views = {view.id: view for view in (*seen.queued, *seen.running)}
    for job in state.jobs.values():
        view, done = views.get(job.id), job.progress.step
        if view is None:
            found[job.id] = _Work(max(1, done), done)
            continue
        left = predictor.remaining_steps(view)
        total = predictor.total_steps(view)
        if total is None:
            assumed.append(job.id)
            total = done + left
        steps = max(1, done, round(total))
        found[job.id] = _Work(steps, min(steps, max(done, int(steps - left))))
    return found, tuple(assumed)


def _shell(state: State, what: QueueChange, now_s: float) -> Shell:
    specs = [replace(job.spec, name=str(job.id)) for job in state.jobs.values()]
    jobs = tuple(WorkJob(0.0, spec) for spec in specs)
    hosts = [HostSpec(host.id, host.gpu_type, len(host.gpus)) for host in state.hosts.values()]
    scene = Scene(
        Workload("the present queue", jobs),
        Cluster("the controller's", (*hosts, *what.hosts)),
        _costs(state),
        (),
        Truth(state.profiles, seed=state.seed, spread=0.0),
    )
    shell = Shell(scene, what.policy, what.mechanism, state.seed)
    shell.engine, shell.refits = Engine(state, explains=shell.keep), None
    shell.account.since_s = shell.world.now_s = now_s
    return shell


def _costs(state: State) -> Costs:
    """What starts, saves and stops of these jobs cost in the mean, as is believed now."""
    book: ProfileBook = state.profiles
    known = [book.overhead(job.spec.job_type) for job in state.jobs.values()]
    means = {name: fmean(getattr(one, name) for one in known) for name in COSTS}
    return Costs(
        "as the controller believes", Overhead(**means, source="learned by the controller")
    )


def _adopt(shell: Shell, state: State, works: dict[JobId, _Work]) -> list[ev.Event]:
    """Give the world every container that is there; what their SideCars say."""
    told = []
    for job in state.jobs.values():
        work, per_epoch = works[job.id], job.progress.steps_per_epoch
        truth = _Believed(
            job.spec, work.steps, per_epoch, 1.0, state.profiles, measured=job.measured
        )
        life = shell.world.lives[job.id] = Life(truth, saved_step=work.done)
        if job.stage in (Stage.NONE, Stage.LAUNCHING) or job.host is None:
            continue
        told.append(shell.world.adopt(_container(state, job, job.host, life, shell.world.now_s)))
    return told


def _container(state: State, job: Job, host: HostId, life: Life, now_s: float) -> Container:
    found = Container(job.id, job.attempt, host, state.hosts[host].gpu_type, life)
    found.epoch, found.generation, found.sequence = state.epoch, job.generation, job.sequence
    found.phase, found.step, found.at_s = Phase.INITIALIZED, life.saved_step, now_s
    if job.stage in _HOLDS and job.gpus:
        found.phase, found.devices = Phase.RUNNING, job.gpus
        found.step_s = life.truth.step_s(found.gpu_type, len(job.gpus))
    elif job.stage is Stage.STOPPING:
        found.stopped_generation = job.generation
    if job.stage in (Stage.SAVING, Stage.STARTING):
        found.generation -= 1  # what is asked for is yet to come
    return found


def _more(state: State, what: QueueChange) -> list[ev.Event]:
    """Hosts and GPUs that are not there."""
    events: list[ev.Event] = []
    if what.more_gpus:
        for host in tuple(state.hosts.values()):
            more = tuple(GpuId(f"{host.id}-more-{number}") for number in range(what.more_gpus))
            events.append(ev.HostAdded(host.id, host.gpu_type, more))
    events += [ev.HostAdded(host.id, host.gpu_type, host.gpu_ids()) for host in what.hosts]
    return events
