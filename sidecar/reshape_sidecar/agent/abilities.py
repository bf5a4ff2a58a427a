"""When the training process saves, as far as the agent can tell.

Does: takes the word of the hook or session; of any other program it reads from /proc whether it
handles SIGTERM.
"""

from __future__ import annotations

import signal
from pathlib import Path

from reshape_sidecar.contract import HookPhase, HookReport
from reshape_sidecar.init import processes
from reshape_sidecar.init.values import TrainingProcess
from reshape_sidecar.limits import UNHOOKED_RUNNING_S
from reshape_sidecar.wire import Saves

PROC = Path("/proc")
BEFORE_TRAINING = (HookPhase.IMPORTING, HookPhase.BUILDING)


def saves(
    training: TrainingProcess,
    report: HookReport | None,
    *,
    prepares_s: float,
    now_s: float,
    per_gpu: bool = False,
) -> Saves | None:
    """Return when a process that trains saves; None while its first report is missing.

    ``report``: its newest. ``prepares_s``: time for which its first step is waited for; more than
    ``UNHOOKED_RUNNING_S`` if the hook or a session reports it. ``now_s``: monotonic clock.
    ``per_gpu``: it is the parent of the processes that train, and sends them the SIGTERM.
    """
    if report is not None:
        if report.saves is not None:
            return report.saves
        # A hook of level 1 reports a later phase only from a `fit` or a session.
        return Saves.NEVER if report.phase in BEFORE_TRAINING else Saves.BOUNDARY
    if prepares_s > UNHOOKED_RUNNING_S:
        return None if now_s < training.spawned_at_s + prepares_s else Saves.NEVER
    pids = children(training.pid) if per_gpu else [training.pid]
    handles = any(catches(pid, signal.SIGTERM) for pid in pids)
    return Saves.SIGTERM if handles else Saves.NEVER


def children(pid: int) -> list[int]:
    """Return the processes that ``pid`` has started and that still run."""
    return [proc.pid for proc in processes.snapshot().values() if proc.parent == pid]


def catches(pid: int, signum: signal.Signals, proc: Path = PROC) -> bool:
    """Return whether the process has a handler for a signal; false if it is gone."""
    try:
        lines = (proc / str(pid) / "status").read_text().splitlines()
    except OSError:
        return False
    masks = [line.split()[1] for line in lines if line.startswith("SigCgt:")]
    return bool(masks) and bool(int(masks[0], 16) >> (signum - 1) & 1)
