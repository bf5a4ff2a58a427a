"""When the training process saves, as far as the agent can tell.

Does: takes the word of the hook or session; of any other program it reads from /proc whether it
handles SIGTERM.
"""

from __future__ import annotations

import signal
from pathlib import Path

from reshape_sidecar.contract import HookPhase, HookReport
from reshape_sidecar.init.values import TrainingProcess
from reshape_sidecar.limits import HOOKED_RUNNING_S
from reshape_sidecar.wire import Saves

PROC = Path("/proc")
BEFORE_TRAINING = (HookPhase.IMPORTING, HookPhase.BUILDING)


def saves(
    training: TrainingProcess, report: HookReport | None, *, reports: bool, now_s: float
) -> Saves | None:
    """Return when a process that trains saves; None while its first report is missing.

    ``report``: its newest. ``reports``: it runs under the hook, or its script names the session
    API. ``now_s``: monotonic clock.
    """
    if report is not None:
        if report.saves is not None:
            return report.saves
        # A hook of level 1 reports a later phase only from a `fit` or a session.
        return Saves.NEVER if report.phase in BEFORE_TRAINING else Saves.BOUNDARY
    if reports:
        return None if now_s < training.spawned_at_s + HOOKED_RUNNING_S else Saves.NEVER
    return Saves.SIGTERM if catches(training.pid, signal.SIGTERM) else Saves.NEVER


def catches(pid: int, signum: signal.Signals, proc: Path = PROC) -> bool:
    """Return whether the process has a handler for a signal; false if it is gone."""
    try:
        lines = (proc / str(pid) / "status").read_text().splitlines()
    except OSError:
        return False
    masks = [line.split()[1] for line in lines if line.startswith("SigCgt:")]
    return bool(masks) and bool(int(masks[0], 16) >> (signum - 1) & 1)
