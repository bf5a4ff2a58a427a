"""Installs the hook in one process of a PyTorch job with ``processes: per-gpu``.

Does: waits for the import of a library whose trainer Reshape knows, and patches it; lets the ranks
meet at the socket that their parent has bound, and checks before the first step that they have met;
patches the trackers that go on at a restart.
Never: imports PyTorch, or changes a script that uses none of these libraries.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from reshape_sidecar import checkpoints, session
from reshape_sidecar.exceptions import raised_by_rank
from reshape_sidecar.hook import settings as hook_settings
from reshape_sidecar.hook import trackers
from reshape_sidecar.hook.imports import ImportWatch
from reshape_sidecar.hook.settings import HookSettings
from reshape_sidecar.pytorch import group_check, rendezvous
from reshape_sidecar.ranks import boundary
from reshape_sidecar.ranks.boundary import RankBoundary
from reshape_sidecar.session import Session

TRANSFORMERS = "transformers.trainer"
LIGHTNING = ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer")


class RankHook:
    """What the hook learns of the script; ``hook.run`` tells it how the script ends."""

    def __init__(self) -> None:
        self.exit_code = 0
        self._ends: list[Callable[[], None]] = []

    @functools.cached_property
    def settings(self) -> HookSettings:
        """What the agent has told this process."""
        return hook_settings.from_environment(os.environ) or HookSettings()

    @functools.cached_property
    def ranks(self) -> RankBoundary | None:
        """The boundaries of this process; None if it is no rank."""
        return boundary.of(self.settings)

    @functools.cached_property
    def session(self) -> Session:
        """The session of this process, which starts with the first use."""
        return session.start()

    def at_end(self, call: Callable[[], None]) -> None:
        """Call ``call`` when the script has ended with exit code 0."""
        self._ends.append(call)

    def script_ended(self) -> None:
        """Note that the script has ended with exit code 0."""
        for call in self._ends:
            call()
        if self.ranks is not None:
            self.ranks.finish()

    def failed(self, error: BaseException) -> None:
        """Note the exception that ends the script. Python prints it between the lines of the other
        ranks, so it is printed again in one line that names the rank: the agent reads that."""
        if self.ranks is None:
            return
        self.ranks.fail()
        if not isinstance(error, SystemExit):
            line = raised_by_rank(self.settings.rank, os.getpid(), error)
            os.write(2, line.encode(errors="replace"))


def start() -> RankHook:
    """Watch for the libraries; return what ``hook.run`` tells of the script's end."""
    hook, watch = RankHook(), ImportWatch()
    rendezvous.take(watch)
    if hook.ranks is not None:
        is_micro = hook.settings.micro_batches is not None
        group_check.watch_first_step(watch, hook.ranks, is_micro=is_micro)

    def lightning_imported(module: ModuleType) -> None:
        from reshape_sidecar.pytorch import lightning_patch

        lightning_patch.patch(module, hook)

    def transformers_imported(module: ModuleType) -> None:
        from reshape_sidecar.pytorch import hf_patch

        hf_patch.patch(module, hook)

    def newest() -> Path | None:
        folder = hook.settings.checkpoints
        found = folder and checkpoints.newest(folder, hook.settings.hashed)
        return found.path if found else None

    trackers.watch(watch, newest)
    watch.after(TRANSFORMERS, transformers_imported)
    for name in LIGHTNING:
        watch.after(name, lightning_imported)
    return hook
