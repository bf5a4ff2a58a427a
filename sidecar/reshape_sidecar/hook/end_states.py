"""The weights at the end of each finished ``fit`` call whose model a later call trains on.

Does: writes them once, when the next call of that model begins, and reads them when a restarted
script skips the call. So code of the script between two calls that
saves or decides by weights has those of that time. They lie beside the checkpoints, which name
them with a digest, so that a save does not write them again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from reshape_sidecar.hook import variables
from reshape_sidecar.hook.settings import HookSettings
from reshape_sidecar.hook.values import ARRAYS_FILE, STATE_FILE, Reader, Writer

BYTES_MAX = 4 << 30
"""Most bytes that the end states of a job may take; those of further calls are not kept."""
LOST = (
    "code between finished `fit` calls gets newer weights at a restart than those at the end of "
    "each call, which the checkpoints do not hold: call `fit` once, and save and decide in "
    "callbacks"
)
_NAME = re.compile(r"fit-a(\d+)-g(\d+)-[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class EndState:
    """Where the end state of a call is: a folder beside the checkpoints, its bytes and digest."""

    name: str
    size_bytes: int
    digest: str


class EndStates:
    """The end states of this job's calls; without a checkpoint folder there are none."""

    def __init__(self, settings: HookSettings) -> None:
        self._folder = settings.checkpoints
        self._start = (settings.attempt, settings.generation)

    def write(
        self,
        states: list[variables.VariableState],
        known: Iterable[EndState | None],
        *,
        slots: bool,
    ) -> EndState | None:
        """Write the ``states`` of a model at the end of a call; None if that is not possible.

        ``known``: the end states of the calls before. ``slots``: the script has saved the optimizer
        since, so its slots are written too.
        """
        if self._folder is None:
            return None
        others = [state for state in known if state is not None]
        states = variables.of_end(states, slots=slots)
        size_bytes = sum(value.nbytes for state in states for value in state.values)
        if size_bytes + sum(state.size_bytes for state in others) > BYTES_MAX:
            return None
        self._remove_unknown({state.name for state in others})
        return self._write(self._folder, states, size_bytes)

    def read(self, state: EndState | None) -> list[variables.VariableState] | None:
        """Return what was written; None if it is not there or damaged."""
        if state is None or self._folder is None:
            return None
        folder = self._folder / state.name
        with contextlib.suppress(OSError, ValueError, KeyError):
            if _digest(folder) == state.digest:
                reader = Reader(folder)
                return variables.decode(reader.document["variables"], reader)
        return None

    def _write(
        self, root: Path, states: list[variables.VariableState], size_bytes: int
    ) -> EndState | None:
        attempt, generation = self._start
        folder = root / f"fit-a{attempt}-g{generation}-{os.urandom(8).hex()}"
        writer = Writer()
        document = {"variables": variables.encode(states, writer)}
        try:
            folder.mkdir()
            writer.write(folder, document)
            return EndState(folder.name, size_bytes, _digest(folder))
        except OSError:  # a full disk: the verdict says that the state is not kept
            shutil.rmtree(folder, ignore_errors=True)
            return None

    def _remove_unknown(self, known: set[str]) -> None:
        """Remove what a process has written and no checkpoint names; not that of a later start."""
        assert self._folder is not None
        with contextlib.suppress(OSError):
            for name in os.listdir(self._folder):
                match = _NAME.fullmatch(name)
                if match is None or name in known:
                    continue
                if (int(match[1]), int(match[2])) <= self._start:
                    shutil.rmtree(self._folder / name, ignore_errors=True)


def _digest(folder: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in (STATE_FILE, ARRAYS_FILE):
        with open(folder / name, "rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()
