"""The observed state that the agent reports, and which desired states it accepts. Pure."""

from __future__ import annotations

from dataclasses import replace

from reshape_sidecar.agent import converge, environment
from reshape_sidecar.agent.memory import Memory
from reshape_sidecar.agent.spec import AttemptSpec
from reshape_sidecar.contract import HookReport
from reshape_sidecar.init.values import InitStatus, SuccessorProcess
from reshape_sidecar.wire import (
    WIRE_VERSION,
    Desired,
    GpuUse,
    Meeting,
    Mode,
    Observed,
    Phase,
    Prepared,
    Reached,
    Saves,
    Standby,
)

SEQUENCES_PER_BOOT = 1_000_000
"""Reports in one millisecond of an agent's life: a later start's numbers are all higher."""


def can_prepare(spec: AttemptSpec, status: InitStatus) -> bool:
    """Return whether a successor may be prepared in this attempt."""
    return spec.may_overlap and environment.hooked(spec) and status.prepare_number is not None


def ready_after_s(successor: SuccessorProcess | None) -> float | None:
    """Return how long a successor took until it could be used; None before that."""
    if successor is None or successor.ready_at_s is None:
        return None
    return successor.ready_at_s - successor.started_at_s


def _prepared(successor: SuccessorProcess | None) -> Prepared | None:
    if successor is None:
        return None
    return Prepared(successor.devices, successor.stage, successor.reason, ready_after_s(successor))


def observed_state(
    spec: AttemptSpec,
    memory: Memory,
    status: InitStatus,
    checked: bool,
    sequence: int,
    gpu_use: tuple[GpuUse, ...],
    address: str | None = None,
    hook: HookReport | None = None,
    waits_for: str | None = None,
    saves: Saves | None = None,
    standby: Standby | None = None,
    reached: Reached | None = None,
) -> Observed:
    """Return the whole observed state."""
    phase = converge.phase(memory, status, checked=checked)
    training = status.training
    running = training is not None and training.running
    ended = memory.ended if phase in (Phase.CRASHED, Phase.FINISHED) else None
    error = memory.unfit if phase is Phase.UNFIT else ended.error if ended else waits_for
    state = Observed(
        job=spec.job,
        attempt=spec.attempt,
        generation=memory.generation,
        sequence=sequence,
        phase=phase,
        epoch=memory.epoch,
        devices=memory.devices if running else (),
        pid=training.pid if training is not None and running else None,
        start_time=training.start_time if training is not None and running else None,
        progress=memory.progress,
        outcome=memory.outcome,
        stopped_generation=memory.stopped_generation,
        exit_code=None if ended is None else ended.exit_code,
        error=error,
        times=memory.times,
        gpu_use=gpu_use,
        process_restarts=memory.process_restarts,
        saves=saves if running else None,
        exception=None if ended is None else ended.exception,
        exception_message=None if ended is None else ended.exception_message,
        standby=standby,
        can_prepare=can_prepare(spec, status),
        prepare=None if memory.desired is None else memory.desired.prepare,
        prepared=_prepared(status.prepared),
        reached=reached,
        refused=ended is not None and ended.refused,
        ending=status.ending and (memory.desired is None or memory.desired.mode is not Mode.EXIT),
        devices_used=hook.devices_used if running and hook is not None else None,
    )
    return state if spec.workers == 1 else _among_workers(state, spec, memory, address, hook)


def _among_workers(
    state: Observed,
    spec: AttemptSpec,
    memory: Memory,
    address: str | None,
    hook: HookReport | None,
) -> Observed:
    asks = None
    if hook is not None and hook.asks_step is not None:
        asks = Meeting(hook.generation, hook.asks_step)
    desired = memory.desired
    return replace(
        state,
        worker=spec.worker,
        address=address,
        peers=() if desired is None else desired.peers,
        meeting=None if desired is None else desired.meeting,
        asks=asks,
    )


def refusal_of(spec: AttemptSpec, old: Desired | None, new: Desired) -> str | None:
    """Return why ``new`` is refused: None to accept it, an empty text if it is known already."""
    if (new.job, new.attempt) != (spec.job, spec.attempt):
        return f"a desired state of {new.job} attempt {new.attempt} is not for this attempt"
    if new.version != WIRE_VERSION:
        return f"wire version {new.version} is not {WIRE_VERSION}; update the older side"
    if old is None:
        return None
    if new == old:
        return ""
    if new.epoch < old.epoch or new.generation < old.generation:
        return (
            f"epoch {new.epoch} generation {new.generation} is refused: "
            f"epoch {old.epoch} generation {old.generation} is already in effect"
        )
    other = (new.mode, new.devices) != (old.mode, old.devices)
    if new.generation == old.generation and other:
        return f"generation {new.generation} is in effect with another mode or other devices"
    return None
