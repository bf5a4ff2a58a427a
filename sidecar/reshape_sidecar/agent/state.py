"""The state of one run of the agent: the persisted memory, and values that need not survive it.

Does: holds both for the loop and the actions, and wakes the loop at a change. A change by
``persist`` is on the disk before any reader sees it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from reshape_sidecar import step_file
from reshape_sidecar.agent import (
    abilities,
    library,
    process_exit,
    reporting,
    standby,
)
from reshape_sidecar.agent.memory import Memory, MemoryFile
from reshape_sidecar.agent.spec import Folder
from reshape_sidecar.agent.timing import Timestamps
from reshape_sidecar.contract import HookPhase, HookReport
from reshape_sidecar.init import files
from reshape_sidecar.init.values import ENDING_FILE, Ending, InitStatus
from reshape_sidecar.user import User, run_as
from reshape_sidecar.wire import GpuUse, Observed, Processes, Reached, Saves

log = logging.getLogger("agent")


class AgentState:
    """``wake`` is set if an action may be due; ``push`` reports as soon as possible."""

    def __init__(self, folder: Folder, user: User | None = None) -> None:
        self.folder = folder
        self.user = user
        """Who runs training, and whose the files are that a record names; None: this user."""
        self.spec = folder.spec()
        self._file = MemoryFile(folder.run)
        self.memory: Memory = self._file.boot(time.time())
        self.timestamps = Timestamps(self.memory.learned_at_s)
        self.hook: HookReport | None = None
        """Newest report of the running training process."""
        self.prepares_s = run_as(user, library.prepares_s, self.spec)
        """Time after which a process that has not reported its first step counts as training."""
        self.checked = False
        """True once the self-check has run."""
        self.fault: str | None = None
        """Result of the self-check; None if it passed."""
        self.waits_for: str | None = None
        """Reason for which a start waits."""
        self.address: str | None = None
        """Address at which the other workers reach the next start."""
        self.uses_zygote = False
        """Whether init was asked to keep a zygote."""
        self.zygote_refusal: str | None = None
        """Why init was asked for none."""
        self.gpu_use: tuple[GpuUse, ...] = ()
        self.silent_s: float | None = None
        """For how long a start, or a program without reports, has been silent; None: neither."""
        self.reached = self._prepare_step_file()
        """How far an earlier process came, as this agent found it."""
        self.wake = asyncio.Event()
        self.status: Callable[[], InitStatus]
        self.push: Callable[[], None]
        self._sequence = 0

    def _prepare_step_file(self) -> Reached | None:
        """Return how far the newest process has come that left word in this or an earlier attempt's
        folder; make the file for those of this attempt."""
        if self.spec.worker:
            return None
        found, runs = None, {self.spec.attempt: self.folder.run}
        for number in range(self.spec.attempt - 1, 0, -1):
            runs[number] = self.folder.path.with_name(f"attempt-{number}") / self.folder.run.name
        for number, run in runs.items():
            if step := step_file.newest_step(run):
                found = Reached(number, step)
                break
        try:
            step_file.create(self.folder.run, self.user)
        except OSError as error:
            log.warning("steps are not written down: %s", error)
        return found

    @property
    def saving(self) -> bool:
        """Whether training has reported that it saves."""
        saving = (HookPhase.SAVING, HookPhase.SAVED)
        return self.hook is not None and self.hook.phase in saving

    @property
    def ready(self) -> bool:
        """Whether the self-check passed, and the addresses of all workers are known."""
        desired, workers = self.memory.desired, self.spec.workers
        known = workers == 1 or (desired is not None and len(desired.peers) == workers)
        return self.checked and self.fault is None and known

    def saves(self) -> Saves | None:
        """Return when the process that trains saves; None before its first step."""
        training = self.status().training
        if training is None or self.memory.trained_generation < training.generation:
            return None
        per_gpu = self.spec.processes is Processes.PER_GPU
        return abilities.saves(
            training,
            self.hook,
            prepares_s=self.prepares_s,
            now_s=time.monotonic(),
            per_gpu=per_gpu,
        )

    def persist(self, **changes: Any) -> None:
        """Change the memory, write it to the disk, then report it."""
        memory = replace(self.memory, **changes)
        finished = process_exit.is_over(self.spec, memory.ended, memory.generation)
        memory = replace(memory, finished=finished)
        if finished:
            self.note_ending(Ending.COMPLETE)
        self._file.save(memory)
        self.memory = memory
        self.wake.set()
        self.push()

    def note_ending(self, ending: Ending) -> None:
        """Tell init with which exit code to end; where that cannot be written it is the usual."""
        with contextlib.suppress(OSError):
            files.write_by_rename(self.folder.run / ENDING_FILE, ending)

    def note_trained(self, generation: int) -> None:
        """Note the first step of ``generation``, in memory only: training reports it again."""
        self.memory = replace(self.memory, trained_generation=generation)
        self.wake.set()
        self.push()

    def observe(self) -> Observed:
        """Return the observed state under the newest sequence number."""
        memory = self.memory
        if self.fault is not None and memory.unfit is None:
            memory = replace(memory, unfit=self.fault)
        sequence = memory.boot * reporting.SEQUENCES_PER_BOOT + self._sequence
        observed = reporting.observed_state(
            self.spec,
            memory,
            self.status(),
            self.checked,
            sequence,
            self.gpu_use,
            self.address,
            self.hook,
            self.waits_for,
            self.saves(),
            standby.observed(self.status(), self.zygote_refusal, is_asked=self.uses_zygote),
            self.reached,
        )
        return replace(observed, silent_s=self.silent_s)

    def observe_next(self) -> Observed:
        """Return the observed state under a new sequence number."""
        self._sequence += 1
        return self.observe()
