"""The GPU ledger: every change of a GPU's state, from idle to reserved, in use, releasing and back.

A GPU passes from its owner to another job only on positive evidence: a verified release, or a host
that was cleaned. The ledger changes no job. ``transitions.GPU_CHANGES`` has every legal change.
"""

from __future__ import annotations

from reshape_controller.core import transitions
from reshape_controller.core.commands import CheckRelease
from reshape_controller.core.fast_replace import replace, with_changes
from reshape_controller.core.model import Gpu, GpuId, GpuState, HostId, JobId
from reshape_controller.core.transaction import Transaction


def reserve(tx: Transaction, gpus: tuple[GpuId, ...], job: JobId) -> None:
    """Reserve idle GPUs for a job."""
    for gpu in gpus:
        _move(tx, tx.state.gpus[gpu], GpuState.RESERVED, owner=job)


def promise(tx: Transaction, gpus: tuple[GpuId, ...], job: JobId | None) -> None:
    """Promise GPUs that their owner still uses to a job; None takes the promise back."""
    for gpu in gpus:
        tx.state.put_gpu(replace(tx.state.gpus[gpu], promised_to=job))


def use(tx: Transaction, gpus: tuple[GpuId, ...], job: JobId) -> None:
    """Grant reserved GPUs to their owner, to train on."""
    for gpu in gpus:
        _move(tx, tx.state.gpus[gpu], GpuState.IN_USE, owner=job, promised_to=None)


def release(tx: Transaction, job_id: JobId, gpus: tuple[GpuId, ...], generation: int) -> None:
    """Take in the owner's claim that it left these GPUs, and have the claim verified (R4).

    Processes of generations up to ``generation`` must be gone; a process of a later generation may
    already run on the GPUs that the job keeps.
    """
    if not gpus:
        return
    attempt = tx.state.jobs[job_id].attempt
    for gpu in gpus:
        _move(
            tx,
            tx.state.gpus[gpu],
            GpuState.RELEASING,
            attempt=attempt,
            generation=generation,
            verify_by_s=tx.now_s + tx.limits.verify_s,
            reason="",
        )
    check(tx, tuple(tx.state.gpus[gpu] for gpu in gpus))


def check(tx: Transaction, gpus: tuple[Gpu, ...]) -> None:
    """Command a check of the releases of ``gpus``, one command for each attempt, generation
    and host."""
    groups: dict[tuple[JobId, int, int, HostId], list[GpuId]] = {}
    for gpu in gpus:
        if gpu.owner is not None:
            key = (gpu.owner, gpu.attempt, gpu.generation, gpu.host)
            groups.setdefault(key, []).append(gpu.id)
    for (job, attempt, generation, _), ids in groups.items():
        tx.commands.append(CheckRelease(tx.state.epoch, job, attempt, generation, tuple(ids)))


def free(tx: Transaction, gpu: Gpu) -> None:
    """Pass a GPU that is known to be empty on: to the job that it is promised to, else it is idle.
    A GPU that its host does not show is lost."""
    if gpu.unseen:
        _take_away(tx, gpu, GpuState.LOST, gpu.unseen)
        tx.state.plan_wanted = True
        return
    if gpu.promised_to is not None:
        _move(
            tx,
            gpu,
            GpuState.RESERVED,
            owner=gpu.promised_to,
            promised_to=None,
            verify_by_s=None,
            reason="",
        )
        return
    _move(tx, gpu, GpuState.IDLE, owner=None, verify_by_s=None, reason="")
    tx.freed[gpu.host] = None
    tx.state.plan_wanted = True


def quarantine(tx: Transaction, gpu: Gpu, reason: str) -> None:
    """Take a GPU out of the ledger until an operator clears it."""
    _take_away(tx, gpu, GpuState.QUARANTINED, reason)
    tx.note(None, "gpu-quarantined", f"GPU {gpu.id} on {gpu.host}: {reason}")
    tx.state.plan_wanted = True


def lose(tx: Transaction, host: HostId, reason: str) -> None:
    """Mark the GPUs of a silent host as lost until it is cleaned: their processes are unknown."""
    for gpu in tx.state.gpus_of_host(host):
        _take_away(tx, gpu, GpuState.LOST, reason)


def mark_unseen(tx: Transaction, gpu: Gpu, reason: str) -> None:
    """Mark a GPU that its host does not show: lost at once if idle, else once its owner leaves."""
    gpu = replace(gpu, unseen=reason)
    tx.state.put_gpu(gpu)
    tx.note(None, "gpu-lost", f"GPU {gpu.id} on {gpu.host}: {reason}")
    if gpu.state is GpuState.IDLE:
        free(tx, gpu)


def mark_seen(tx: Transaction, gpu: Gpu) -> None:
    """Mark a GPU that its host shows again. A quarantined GPU stays so; a GPU of a silent host
    stays lost."""
    gpu = replace(gpu, unseen="")
    tx.state.put_gpu(gpu)
    tx.note(None, "gpu-found", f"GPU {gpu.id} on {gpu.host}")
    if gpu.state is GpuState.LOST and tx.state.hosts[gpu.host].present:
        free(tx, gpu)


def is_reserved_for(tx: Transaction, job: JobId, gpus: tuple[GpuId, ...]) -> bool:
    """Whether every GPU is reserved for the job: the condition of its grant."""
    return all(
        tx.state.gpus[gpu].state is GpuState.RESERVED and tx.state.gpus[gpu].owner == job
        for gpu in gpus
    )


def _take_away(tx: Transaction, gpu: Gpu, state: GpuState, reason: str) -> None:
    """Take a GPU from its owner and from the job that it is promised to."""
    _move(tx, gpu, state, owner=None, promised_to=None, verify_by_s=None, reason=reason)


def _move(tx: Transaction, gpu: Gpu, state: GpuState, **changes: object) -> None:
    """Move a GPU to ``state``, and change further fields. Raises InvalidTransition if the state
    must not follow the GPU's last."""
    if (gpu.state, state) not in transitions.GPU_LEGAL:
        recent = tx.state.recent_history(gpu.owner) if gpu.owner is not None else ()
        raise transitions.InvalidTransition(gpu.id, gpu.state, state, recent)
    tx.state.put_gpu(with_changes(gpu, {"state": state, **changes}))
