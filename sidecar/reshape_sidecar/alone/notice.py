"""Notices in a single process that a trainer trains, and tells the agent what the record lacks.

Does: wraps the calls with which training begins, and sends one report at the first. Never: changes
such a call, or says anything where several processes train.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from reshape_sidecar import codec
from reshape_sidecar.contract import HookPhase, HookReport
from reshape_sidecar.hook import report, settings
from reshape_sidecar.hook.log import complain
from reshape_sidecar.hook.settings import HookSettings
from reshape_sidecar.wire import Progress, Trajectory

REMEDY = "write processes: per-gpu"
_said = False


def patch(module: Any) -> None:
    """Wrap the call of a library's ``module`` with which training begins."""
    library = module.__name__.partition(".")[0]
    if library == "accelerate":
        _patch_accelerator(module.Accelerator)
    elif library == "transformers":
        _patch_trainer(module.Trainer, "train", _of_hugging_face)
    else:
        _patch_trainer(module.Trainer, "fit", lambda own: (own.num_devices, own.world_size))


def text_of(gpus: int, used: int, *, is_saved: bool) -> str | None:
    """Return what to say of a process that trains on ``used`` of its ``gpus``; None: nothing.

    is_saved: whether the remedy lets Reshape save this training.
    """
    if used < gpus:
        return f"trains on {used} of {gpus} GPUs and is not saved: {REMEDY}"
    return f"is not saved in a single process: {REMEDY}" if is_saved else None


def _of_hugging_face(trainer: Any) -> tuple[int, int]:
    """Return the GPUs that a process uses, and the number of processes."""
    spread = trainer.is_model_parallel  # over all GPUs
    return max(1, trainer.args.n_gpu), 0 if spread else trainer.args.world_size


def _patch_trainer(owner: Any, name: str, uses: Callable[[Any], tuple[int, int]]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def method(own: Any, *args: Any, **kwargs: Any) -> Any:
        _look(own, uses, is_saved=True)
        return original(own, *args, **kwargs)

    setattr(owner, name, method)


def _patch_accelerator(owner: Any) -> None:
    original = owner.__init__

    @functools.wraps(original)
    def method(own: Any, *args: Any, **kwargs: Any) -> None:
        original(own, *args, **kwargs)
        caller = str(sys._getframe(1).f_globals.get("__name__"))
        if caller.partition(".")[0] != "transformers":  # its Trainer has one too
            _look(own, lambda own: (1, own.num_processes), is_saved=False)

    owner.__init__ = method


def _look(own: Any, uses: Callable[[Any], tuple[int, int]], *, is_saved: bool) -> None:
    """Report, once, unless several processes train or the script has a session."""
    global _said
    with contextlib.suppress(Exception):
        gpus_used, processes = uses(own)
        told = settings.from_environment(os.environ)
        if _said or told is None or processes != 1 or has_session():
            return
        said = text_of(max(1, len(told.devices)), gpus_used, is_saved=is_saved)
        if said is not None:
            _said = True
            complain(f"this {type(own).__name__} {said}")
            _send(told, said)


def has_session() -> bool:
    """Return whether the script uses the session API, which saves and reports."""
    return "reshape_sidecar.session" in sys.modules


def _send(told: HookSettings, said: str) -> None:
    progress = Progress(trajectory=Trajectory.UNKNOWN.value, trajectory_reason=said)
    made = HookReport(told.generation, HookPhase.NOTICED, progress)
    if told.socket is not None:
        report.post(told.socket, codec.dumps(made).encode())
