"""The conditions that hold between any two events.

Does: raises InvariantError with the first contradiction. Tests check the state after each step,
the daemon after each batch. Repairs nothing.
"""

from __future__ import annotations

from reshape_controller.core import gang
from reshape_controller.core.errors import InvariantError
from reshape_controller.core.model import (
    ChangeKind,
    DeadlineKind,
    Gpu,
    GpuId,
    GpuState,
    HostId,
    Job,
    JobState,
    Stage,
)
from reshape_controller.core.state import State

_WAITS = (Stage.LAUNCHING, Stage.STARTING, Stage.SAVING, Stage.STOPPING, Stage.ENDING)


def check(state: State) -> None:
    """Check the whole state. Raises InvariantError."""
    for host in state.hosts.values():
        for gpu in host.gpus:
            _require(state.gpus[gpu].host == host.id, f"{gpu} is not on {host.id}")
    for gpu_value in state.gpus.values():
        _check_gpu(state, gpu_value)
    for job in state.jobs.values():
        _check_job(state, job)


def _check_gpu(state: State, gpu: Gpu) -> None:
    owned = gpu.state in (GpuState.RESERVED, GpuState.IN_USE, GpuState.RELEASING)
    _require(owned == (gpu.owner is not None), f"{gpu.id}: {gpu.state} with owner {gpu.owner}")
    owner = state.jobs.get(gpu.owner) if gpu.owner is not None else None
    if gpu.state is GpuState.IN_USE:
        _require(owner is not None and gpu.id in owner.gpus, f"{gpu.id}: its owner lacks it")
    if gpu.state is GpuState.RESERVED:
        _require(owner is not None and _awaits(owner, gpu), f"{gpu.id}: no use of it is planned")
    if gpu.state is GpuState.RELEASING:
        _require(gpu.verify_by_s is not None, f"{gpu.id}: releasing without a deadline")
    free = gpu.state is GpuState.IDLE or gpu.promised_to is not None
    _require(not (gpu.unseen and free), f"{gpu.id}: free, but its host lacks it")
    if gpu.promised_to is not None:
        to = state.jobs.get(gpu.promised_to)
        promised = to is not None and to.hand_over is not None and gpu.id in to.hand_over.gpus
        _require(promised, f"{gpu.id}: {gpu.promised_to} does not expect it")


def _awaits(owner: Job, gpu: Gpu) -> bool:
    grows = owner.change is not None and owner.change.kind is ChangeKind.GROW
    for_change = grows and owner.change is not None and gpu.id in owner.change.gpus_after
    return for_change or (owner.hand_over is not None and gpu.id in owner.hand_over.gpus)


def _check_job(state: State, job: Job) -> None:
    name = f"{job.id} ({job.stage.value})"
    _require(job.state is not JobState.REJECTED, f"{name}: a rejected record has a job")
    for gpu in job.gpus:
        own = state.gpus[gpu]
        _require(own.state is GpuState.IN_USE and own.owner == job.id, f"{name}: lost {gpu}")
        _require(job.is_on(own.host), f"{name}: {gpu} is on {own.host}")
    if job.hosts:
        _check_gang(state, job, name)
    whole = job.stage is not Stage.ENDING or not job.hosts
    sizes = job.spec.optional_gpus
    _require(not (job.gpus and whole) or len(job.gpus) in sizes, f"{name}: not its GPU count")
    back_to = job.trial.back_to
    may_go_back = back_to in sizes and back_to not in job.struck
    _require(not back_to or may_go_back, f"{name}: goes back to {back_to}, which it may not get")
    silent = [host for host in job.all_hosts if not state.hosts[host].present]
    _require(not silent or job.stage is Stage.ENDING, f"{name}: lives on without {silent}")
    _require(bool(job.gpus) or not job.stage.has_gpus, f"{name}: has no GPUs in this stage")
    _require(job.stage is not Stage.NONE or not job.gpus, f"{name}: has GPUs and no container")
    is_suspended = job.stage is Stage.LAUNCHING and bool(job.suspended)
    waits = job.stage in _WAITS and not is_suspended
    is_looked_at = job.stage is Stage.STARTING and job.starts_since_s is not None
    _require(not waits or is_looked_at or job.deadline is not None, f"{name}: has no deadline")
    _require(not is_suspended or job.hand_over is None, f"{name}: suspended, and gets GPUs")
    _require((job.stage is Stage.NONE) == (job.host is None), f"{name}: host {job.host}")
    _require(not (job.state.terminal and job.stage is Stage.NONE), f"{name}: has ended")
    stays = job.only_host in (None, job.host) or job.stage in (Stage.NONE, Stage.ENDING)
    _require(stays, f"{name}: on {job.host}, but can run only on {job.only_host}")
    if job.stage in (Stage.SAVING, Stage.STOPPING):
        _require(job.change is not None, f"{name}: saves or stops without a request")
    if job.donation is not None:
        _require(job.stage.has_gpus, f"{name}: donates GPUs and has none")
        _require(all(g in job.gpus for g in job.donation.keeps), f"{name}: keeps other GPUs")
        to = state.jobs.get(job.donation.to)
        knows = to is not None and to.hand_over is not None and job.id in to.hand_over.donors
        _require(knows, f"{name}: {job.donation.to} does not expect its GPUs")
    if job.prepare is not None:
        changes = job.donation is not None or job.hand_over is not None
        _require(
            job.stage is Stage.TRAINING and changes,
            f"{name}: prepares a successor, and is party to no hand-over before its request",
        )
    if job.deadline is not None and job.deadline.kind is DeadlineKind.IMPORTS:
        takes = job.hand_over is not None and not job.hand_over.shrink_asked
        _require(job.stage is Stage.READY and takes, f"{name}: awaits imports, and takes no GPUs")
    if job.hand_over is not None:
        there = gang.place(state.gpus, job.hand_over.gpus, job.spec.workers)
        _check_workers(state, job.hand_over.gpus, job.spec.workers, there[1], name)
        _require(len(job.hand_over.gpus) in job.spec.optional_gpus, f"{name}: gets no size")
        _require(not job.state.terminal, f"{name}: has ended, but gets GPUs")
        stays = there != (job.host, job.hosts) or all(
            each in job.hand_over.gpus for each in job.gpus
        )
        _require(stays or job.stage is not Stage.TRAINING, f"{name}: loses GPUs by its hand-over")


def _check_gang(state: State, job: Job, name: str) -> None:
    """The workers of a gang are on its hosts, each with as many GPUs; not once a host was lost."""
    _require(len(job.hosts) == job.spec.workers, f"{name}: {len(job.hosts)} hosts of its workers")
    _require(len(job.all_hosts) > 1, f"{name}: a gang on one host")
    _require(job.hosts[0] == job.host, f"{name}: its first worker is not on {job.host}")
    types = {state.hosts[host].gpu_type for host in job.all_hosts}
    _require(len(types) == 1 or job.stage is Stage.ENDING, f"{name}: GPUs of {len(types)} types")
    if job.gpus and job.stage is not Stage.ENDING:
        _check_workers(state, job.gpus, len(job.hosts), job.hosts, name)
    keeps = job.donation.keeps if job.donation is not None else ()
    if keeps:
        _check_workers(state, keeps, len(job.hosts), job.hosts, name)


def _check_workers(
    state: State, gpus: tuple[GpuId, ...], workers: int, hosts: tuple[HostId, ...], name: str
) -> None:
    """The k-th worker's part of the GPUs is on the k-th host. ``hosts``: empty for one host."""
    if not hosts:
        found = {state.gpus[gpu].host for gpu in gpus}
        _require(len(found) == 1, f"{name}: GPUs of {len(found)} hosts for one worker")
        return
    each = len(gpus) // workers
    _require(each * workers == len(gpus), f"{name}: {len(gpus)} GPUs for {workers} workers")
    for number, gpu in enumerate(gpus):
        at = state.gpus[gpu].host
        on = hosts[number // each]
        _require(at == on, f"{name}: worker {number // each} is on {on}, and its {gpu} on {at}")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise InvariantError(what)
