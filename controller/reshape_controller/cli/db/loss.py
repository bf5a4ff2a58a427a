"""``db recover --accept-loss``, ``db backup`` and ``db restore``: a log that has lost records.

Does: note that an operator goes on with a shorter log; copy a store, and put a copy back. The next
start begins a higher epoch and looks at every container before it grants anything. Never: change a
log, or act while a daemon runs on the home.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.home import Home
from reshape_controller.cli.options import HomeOption, OutputOption, form, options_from, settings
from reshape_controller.cli.output import emit
from reshape_controller.cli.serve.store_settings import (
    StoreSettings,
    of_file,
    store_error,
    store_settings,
)
from reshape_controller.live.marks import accepted, end_of
from reshape_controller.store.mark import Mark, MarkDamaged, MarkFile
from reshape_controller.store.protocol import StoreError
from reshape_controller.store.sqlite import backup as sqlite_backup
from reshape_gpu.config import Config

LossOption = Annotated[
    bool,
    typer.Option("--accept-loss", help="Go on although acknowledged records are lost."),
]
_NEXT = (
    "start the daemon: it begins a higher epoch, and gives out no GPU while a container runs that "
    "knows more than this log; on Kubernetes end every pod first"
)


@dataclass(frozen=True, slots=True)
class LossReport:
    """An accepted loss. ``noted_seq`` is the newest record that was noted; ``last_seq`` the one
    with which the log ends."""

    store: str
    last_seq: int
    noted_seq: int
    lost: int
    epoch: int
    """The next controller's epoch is higher."""


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """A copy in the store's place. ``replaced``: where the store of before is; empty: none."""

    store: str
    last_seq: int
    noted_seq: int
    lost: int
    requests: int
    replaced: str


@options_from("home", "store", "output")
def back_up(
    config: Config,
    into: Annotated[str, typer.Argument(metavar="NEW", help="File to write; must not exist.")],
) -> None:
    """Copy the store of the home to a file, also while the daemon runs, and check the copy."""
    path = store_file(config, "db backup", "mongodump --uri=URI --out=FOLDER copies it")
    if not path.exists():
        remedy = "give the home (--home); of a MongoDB store make a mongodump"
        raise failed(Exit.NOT_FOUND, "the home has no store file", str(path), remedy)
    try:
        copy = sqlite_backup.back_up(path, Path(into).absolute())
    except StoreError as error:
        raise store_error(error, into) from None
    shown = {"into": str(copy.path), "last_seq": copy.last_seq, "requests": copy.requests}
    text = (
        f"{copy.path}: a whole copy up to record {copy.last_seq}, {copy.size_bytes} bytes\n"
        f"to put it back, stop the daemon and run: reshape db restore {copy.path}"
    )
    emit({**shown, "size_bytes": copy.size_bytes}, form(config), lambda: text)


def restore(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A copy made by db backup.")],
    accept_loss: LossOption = False,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Check a copy of a store and put it in the home's place for it. The daemon must be stopped."""
    config = settings(home, output)
    there = store_file(config, "db restore", "mongorestore --uri=URI FOLDER puts a mongodump back")
    place, path = of_file(there), Path(file).absolute()
    if not path.is_file():
        raise failed(Exit.NOT_FOUND, "the copy does not exist", str(path), "give a store's copy")
    lock = locked(config)
    try:
        report = _restored(place, path, accept_loss)
    except StoreError as error:
        raise store_error(error, str(path)) from None
    finally:
        os.close(lock)
    emit(report, form(config), lambda: _restored_text(report))


def accept(config: Config, file: str | None) -> None:
    """Note that the operator goes on with the log as it is (``db recover --accept-loss``)."""
    place = of_file(Path(file).absolute()) if file else store_settings(config)
    if place.file is not None and not place.file.exists():
        remedy = "give the store's file, or its home: --home DIR"
        raise failed(Exit.NOT_FOUND, "the store does not exist", place.text, remedy)
    lock = locked(config)
    try:
        report = asyncio.run(_accepted(place, Home(config.home).folder))
    except StoreError as error:
        raise store_error(error, place.text) from None
    finally:
        os.close(lock)
    emit(report, form(config), lambda: _accepted_text(report))


def store_file(config: Config, command: str, instead: str) -> Path:
    """Return the store's file. Raises CliError if the settings name a server."""
    place = store_settings(config)
    if place.file is None:
        what = f"{command} is for SQLite files, and this store is a MongoDB database"
        remedy = f"use the server's tools: {instead} (docs/operations.md, Backup and restore)"
        raise failed(Exit.USAGE, what, place.text, remedy)
    return place.file


def locked(config: Config) -> int:
    """Lock the home for a command, as a daemon does. Raises CliError."""
    home = Home(config.home)
    home.prepare()
    return home.lock()


async def accept_end(place: StoreSettings, home: Path) -> tuple[Mark | None, Mark]:
    """Note the log's end as the one to go on from; return the mark of before, and this one."""
    marks = MarkFile(place.mark_file(home))
    noted = _noted(marks)
    mark = accepted(noted, *await _end(place))
    _replace(marks, mark)
    return noted, mark


async def _accepted(place: StoreSettings, home: Path) -> LossReport:
    noted, mark = await accept_end(place, home)
    last_seq = mark.seq
    noted_seq = noted.seq if noted is not None else 0
    lost = max(0, noted_seq - last_seq)
    return LossReport(place.text, last_seq, noted_seq, lost, mark.epoch)


def _restored(place: StoreSettings, copy: Path, accept_loss: bool) -> RestoreReport:
    found = sqlite_backup.verified(copy)
    assert place.file is not None
    marks = MarkFile(place.mark_file(place.file.parent))
    noted = _noted(marks)
    noted_seq = noted.seq if noted is not None else 0
    lost = max(0, noted_seq - found.last_seq)
    if lost and not accept_loss:
        raise failed(
            Exit.FAILED,
            f"the copy ends at record {found.last_seq}, but record {noted_seq} was acknowledged: "
            f"{lost} would be lost",
            str(copy),
            "give a newer copy; or, if there is none, end all containers and add --accept-loss",
        )
    replaced = sqlite_backup.restore(copy, place.file)
    last_seq, digest, epoch = asyncio.run(_end(place))
    _replace(marks, accepted(noted, last_seq, digest, epoch))
    where = str(replaced) if replaced is not None else ""
    return RestoreReport(place.text, last_seq, noted_seq, lost, found.requests, where)


async def _end(place: StoreSettings) -> tuple[int, str, int]:
    store = place.make()
    try:
        await store.open()
        return await end_of(store)
    finally:
        await store.close()


def _noted(marks: MarkFile) -> Mark | None:
    try:
        return marks.read()
    except (MarkDamaged, OSError):
        return None  # the daemon's start names it; the mark is made again here


def _replace(marks: MarkFile, mark: Mark) -> None:
    try:
        marks.replace(mark)
    except OSError as error:
        remedy = "free space on its disk, and run the command again"
        what = f"the mark cannot be written: {error.strerror}"
        raise failed(Exit.FAILED, what, str(marks.path), remedy) from None


def _accepted_text(report: LossReport) -> str:
    lost = f"{report.lost} acknowledged records are lost" if report.lost else "no loss was noted"
    return (
        f"{report.store}: the log ends at record {report.last_seq}; this home has noted record "
        f"{report.noted_seq}: {lost}\n{_NEXT}"
    )


def _restored_text(report: RestoreReport) -> str:
    lines = [f"{report.store}: restored up to record {report.last_seq}"]
    if report.lost:
        lines.append(f"{report.lost} acknowledged records are lost")
    if report.replaced:
        lines.append(f"the store of before is now {report.replaced}")
    return "\n".join([*lines, _NEXT])
