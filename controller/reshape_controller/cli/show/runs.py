"""The runs below a folder that ``reshape show`` can open: stores of daemons, and logs of replays.

Does: finds them, and makes a store that is a copy. Never: writes into the folder.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.core.engine import Engine
from reshape_controller.core.record import LogRecord
from reshape_controller.live.projection import changes_of
from reshape_controller.scheduling.rounds import redo
from reshape_controller.store.digest import GENESIS, seal
from reshape_controller.store.protocol import Store
from reshape_controller.store.sqlite.backup import back_up
from reshape_controller.store.sqlite.store import SqliteStore
from reshape_sidecar import codec, foreign

STORE, HOME, LOGS_OF_REPLAYS = "store.sqlite", "home", "log"
FIRST = "adaptive"
"""The run that is opened if none is named and several are there."""
DEPTH_MAX = 5
"""Folders below the given one in which runs are looked for."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run that can be opened. ``name`` is its path below the folder."""

    name: str
    path: Path

    @property
    def is_replay(self) -> bool:
        """Whether it has the log of a replay, and no store."""
        return self.path.suffix == ".jsonl"

    @property
    def logs(self) -> Path | None:
        """The folder of the jobs' folders; None for a replay, and for a link."""
        jobs = self.path.parent / "jobs"
        return None if self.is_replay or jobs.is_symlink() else jobs


def runs_in(folder: Path) -> tuple[Run, ...]:
    """Return the runs of a folder, by name. Raises CliError if there is none."""
    if folder.is_file() and folder.suffix in (".sqlite", ".jsonl"):
        return (Run(folder.stem, folder),)
    found: list[Run] = []
    inside = folder.resolve()
    for depth in range(DEPTH_MAX):
        begin = "*/" * depth
        for path in _within(inside, folder.glob(f"{begin}{STORE}")):
            found.append(Run(_name(folder, path), path))
        for path in _within(inside, folder.glob(f"{begin}{LOGS_OF_REPLAYS}/*.jsonl")):
            place = path.parent.parent.relative_to(folder) / path.stem
            found.append(Run(place.as_posix(), path))
    if not found:
        what = "no run is there: neither a daemon's store nor the log of a replay"
        remedy = (
            "give a daemon's home, the folder of `make demo`, or that of `reshape replay --out`"
        )
        raise failed(Exit.NOT_FOUND, what, str(folder), remedy)
    return tuple(found)


def _within(folder: Path, paths: Iterable[Path]) -> list[Path]:
    """Return the paths that no link leads out of ``folder``, in order. Raises CliError at a link
    that does."""
    found = sorted(paths)
    for path in found:
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError):  # RuntimeError: a link to itself
            real = None
        if real is None or not real.is_relative_to(folder):
            what = "it is a link that leaves the folder, or leads nowhere"
            raise failed(Exit.FAILED, what, str(path), f"remove it, or show {real or 'a copy'}")
    return found


def _name(folder: Path, path: Path) -> str:
    parts = [part for part in path.relative_to(folder).parts[:-1] if part != HOME]
    return "/".join(parts) or folder.resolve().name


def chosen(runs: tuple[Run, ...], name: str | None) -> Run:
    """Return the named run; without a name one of adaptive, else the first. Raises CliError."""
    if name is None:
        return next((run for run in runs if FIRST in run.name), runs[0])
    for run in runs:
        if run.name == name:
            return run
    named = ", ".join(run.name for run in runs)
    raise failed(Exit.NOT_FOUND, f"there is no run {name!r}", "--run", f"use one of: {named}")


async def open_copy(run: Run, folder: Path) -> Store:
    """Open a copy of a run's store below ``folder``. Raises StoreError, OSError, CliError."""
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / STORE
    if not run.is_replay:
        back_up(run.path, path)
    store = SqliteStore(path, durable=False)
    await store.open()
    try:
        if run.is_replay:
            await _fill(store, run.path)
    except BaseException:
        await store.close()
        raise
    return store


async def _fill(store: Store, log: Path) -> None:
    """Append the records of a replay's log, and write their rows. Raises CliError."""
    engine, digest = Engine(), GENESIS
    with foreign.reader(log) as lines:
        number = 0
        while line := lines.readline(foreign.INPUT_BYTES_MAX + 1):
            number += 1
            try:
                if len(line) > foreign.INPUT_BYTES_MAX:
                    raise ValueError("it is too long")
                record = codec.loads(LogRecord, line)
                sealed = seal(digest, record)
                done = redo(engine, sealed)
            except Exception as error:
                what = f"line {number} is no record of this version's replays ({error})"
                remedy = "write the folder again: reshape replay --out FOLDER"
                raise failed(Exit.FAILED, what, str(log), remedy) from None
            await store.append(sealed)
            await store.project(changes_of(engine, sealed, done.history))
            digest = sealed.digest
