"""Several workers of a job save after the same step, though each hears of it at another moment.

Does: the first worker (the chief) names the next step and holds its own until all others know of
it: they cannot finish that step without the chief, so none of them is past it. Every worker then
saves after it. Never: decides who leaves, or touches a checkpoint. State: the step agreed on.

A wish that is taken back leaves the step agreed on: whoever heard of it saves there, so all do. The
chief cannot see who has heard: it holds its step until all have, however long nobody can be told.
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
"""A report may be lost: the wish is said again so often."""
CLAIM_S = 60.0
"""The chief claims the checkpoints when it starts. Then: a worker that has not seen it fails."""
LEAVE_WAIT_S = 30.0
"""A worker that saved waits so long to be told to leave. Then it goes on, to where the chief is."""


def wait_for_claim(folder: Path, attempt: int, job: str) -> None:
    """A worker that is not the chief reads the checkpoints that the chief's attempt accepts. Raises
    Fenced under a newer attempt, CheckpointError if the claim cannot be read."""
    give_up_s = time.monotonic() + CLAIM_S
    while True:
        holder = claims.read(folder)
        if holder is not None and not claims.belongs_to(holder, job):
            holder = None  # the chief will take the folder over
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
    """One of several workers; ``step`` is always that of the boundary at which it is now."""

    def __init__(self, settings: HookSettings, reporter: ProgressReporter, stop: Stop) -> None:
        self._settings = settings
        self._reporter = reporter
        self._stop = stop
        self._barrier_step: int | None = None
        self._done_step: int | None = None
        """The newest meeting that is over."""

    @property
    def chief(self) -> bool:
        return self._settings.worker == 0

    def due(self, step: int) -> bool:
        """Whether all workers save after this step."""
        if not self.chief:
            announced_step = self._announced_step()
            self._barrier_step = None if announced_step == self._done_step else announced_step
        return self._barrier_step is not None and step >= self._barrier_step

    def agree(self, step: int) -> None:
        """The chief was asked to leave after ``step``: have all save after the next one. Holds
        until they know: alone in a save, or left out of one, a worker waits for ever."""
        if self._barrier_step is not None:
            return
        self._barrier_step = step + 1
        requested_s = 0.0
        while self._announced_step() != self._barrier_step:
            if time.monotonic() - requested_s >= ASK_AGAIN_S:
                self._reporter.request_save_after(self._barrier_step)
                requested_s = time.monotonic()
            time.sleep(POLL_S)

    def save_ended(self) -> None:
        """All have saved, and this process goes on."""
        self._done_step, self._barrier_step = self._barrier_step, None
        if self.chief:
            self._reporter.request_save_after(None)

    def wait_to_leave(self) -> None:
        """A worker that is not the chief waits for what the chief's save leads to."""
        agreed = self._barrier_step
        give_up_s = time.monotonic() + LEAVE_WAIT_S
        while not self._stop.requested() and self._announced_step() == agreed:
            if time.monotonic() >= give_up_s:
                return
            time.sleep(POLL_S)

    def _announced_step(self) -> int | None:
        """The step of the meeting that the agent knows of, if it is of this start."""
        path = self._settings.meeting
        if path is None:
            return None
        with contextlib.suppress(OSError, ValueError):
            generation, step = path.read_text(encoding="ascii").split()
            if int(generation) == self._settings.generation:
                return int(step)
        return None
