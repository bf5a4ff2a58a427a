"""The save barrier: all workers of a job save after the same step.

Does: the first worker (the chief) names the next step and holds its own until every other worker
knows of it. The others cannot finish that step without the chief, so none of them is past it. Every
worker then saves after it.

A withdrawn request leaves the barrier in place: a worker that knows of it saves there, so all must.
The chief cannot see which workers know, so it holds its step until all do, even if the controller
is away for long.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from reshape_sidecar import claims
from reshape_sidecar.hook.progress import ProgressReporter
from reshape_sidecar.hook.settings import HookSettings
from reshape_sidecar.hook.stop import Stop

POLL_S = 0.005
ASK_AGAIN_S = 0.5
"""Interval at which the request is sent again, since a report may be lost."""
CLAIM_S = 60.0
"""Time within which a worker must see the chief's claim of the checkpoints; then it fails."""
LEAVE_WAIT_S = 30.0
"""Time that a worker that saved waits for the request to leave; then it trains on."""


def wait_for_claim(folder: Path, attempt: int, job: str) -> None:
    """Wait until the chief of ``attempt`` has claimed ``folder``.

    A worker reads only the checkpoints that this claim accepts. Raises StaleAttempt under a newer
    attempt, CheckpointError if the claim cannot be read or does not come within CLAIM_S.
    """
    give_up_s = time.monotonic() + CLAIM_S
    while True:
        holder = claims.read(folder)
        if holder is not None and not claims.belongs_to(holder, job):
            holder = None  # another job's: the chief takes the folder over
        if holder is not None and holder.attempt > attempt:
            raise claims.StaleAttempt(folder, attempt, holder, job)
        if holder is not None and holder.attempt == attempt:
            return
        if time.monotonic() >= give_up_s:
            raise claims.CheckpointError(
                f"the first worker has not claimed {folder} within {CLAIM_S:g} s; see its log"
            )
        time.sleep(POLL_S)


class SaveBarrier:
    """The barrier as one worker sees it; ``step`` is that of the boundary at which it is now."""

    def __init__(self, settings: HookSettings, reporter: ProgressReporter, stop: Stop) -> None:
        self._settings = settings
        self._reporter = reporter
        self._stop = stop
        self._barrier_step: int | None = None
        self._done_step: int | None = None
        """Step of the newest barrier that this worker has passed."""

    @property
    def chief(self) -> bool:
        return self._settings.worker == 0

    def due(self, step: int) -> bool:
        """Return whether all workers save after this step."""
        if not self.chief:
            announced_step = self._announced_step()
            self._barrier_step = None if announced_step == self._done_step else announced_step
        return self._barrier_step is not None and step >= self._barrier_step

    def raise_barrier(self, step: int) -> None:
        """Make all save after the step that follows ``step``; the chief calls this to leave.

        Returns only when all workers know of it: a worker that is alone in a save, or is left out
        of one, would wait for ever.
        """
        if self._barrier_step is not None:
            return
        self._barrier_step = step + 1
        sent_at_s = 0.0
        while self._announced_step() != self._barrier_step:
            if time.monotonic() - sent_at_s >= ASK_AGAIN_S:
                self._reporter.request_save_after(self._barrier_step)
                sent_at_s = time.monotonic()
            time.sleep(POLL_S)

    def save_ended(self) -> None:
        """Lower the barrier: all have saved, and this process trains on."""
        self._done_step, self._barrier_step = self._barrier_step, None
        if self.chief:
            self._reporter.request_save_after(None)

    def wait_to_leave(self) -> None:
        """Wait for the request to leave, or for the end of the barrier (not for the chief)."""
        step = self._barrier_step
        give_up_s = time.monotonic() + LEAVE_WAIT_S
        while not self._stop.requested() and self._announced_step() == step:
            if time.monotonic() >= give_up_s:
                return
            time.sleep(POLL_S)

    def _announced_step(self) -> int | None:
        """Return the step in the agent's file, if the file is of this generation."""
        path = self._settings.meeting
        if path is None:
            return None
        with contextlib.suppress(OSError, ValueError):
            generation, step = path.read_text(encoding="ascii").split()
            if int(generation) == self._settings.generation:
                return int(step)
        return None
