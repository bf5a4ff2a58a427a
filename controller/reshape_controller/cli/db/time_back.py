"""``db set-time-back``: a log that a start with a wrong clock has put into the future.

Does: without ``--apply`` says what would change; with it, puts a copy of the log with the right
times in the store's place, keeps the store of before beside it, and notes who did it. The next
start begins a higher epoch and looks at every container before it grants anything. Never: acts
while a daemon runs on the home.
"""

from __future__ import annotations

import asyncio
import getpass
import itertools
import json
import os
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from reshape_controller.cli.db.loss import accept_end, locked
from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.home import Home
from reshape_controller.cli.options import form, options_from
from reshape_controller.cli.output import emit
from reshape_controller.cli.serve.store_settings import (
    StoreSettings,
    store_error,
    store_settings,
)
from reshape_controller.core.record import LogRecord
from reshape_controller.live import time_repair
from reshape_controller.live.audit import audit
from reshape_controller.live.clock import ClockNote
from reshape_controller.live.recovery import origin
from reshape_controller.live.time_repair import Ahead, CannotSetBack
from reshape_controller.store.mongo.store import MongoStore
from reshape_controller.store.protocol import Store, StoreError
from reshape_controller.store.sqlite import backup as sqlite_backup
from reshape_controller.store.sqlite import recover
from reshape_gpu.config import Config
from reshape_sidecar import foreign

NOTES_FILE = "repairs.jsonl"
"""In the home: who has set the time back, when, and from where on."""
NO_BEGINNING = "nothing: the records before its first snapshot are gone"
BATCH = 100
"""Records that are written to a server at once."""


@dataclass(frozen=True, slots=True)
class TimeReport:
    """A log whose times were, or would be, set back from ``from_seq`` on."""

    store: str
    from_seq: int
    last_seq: int
    by_s: float
    from_s: float
    """Time of the record ``from_seq`` before."""
    ends_s: float
    """Time of the newest record before."""
    applied: bool
    replaced: str = ""
    """Where the store of before is."""


@options_from("home", "store", "store_credentials", "store_ca", "output")
def set_time_back(
    config: Config,
    apply: Annotated[
        bool, typer.Option("--apply", help="Do it; without it, only say what would change.")
    ] = False,
) -> None:
    """Set the log's time back after a start with a wrong clock. Every controller of the store must
    be stopped, and this machine's clock right."""
    place = store_settings(config)
    if place.file is not None and not place.file.exists():
        remedy = "give the home: --home DIR"
        raise failed(Exit.NOT_FOUND, "the home has no store file", place.text, remedy)
    lock, home, now_s = locked(config), Home(config.home), time.time()
    try:
        set_back = (
            _in_file(place.file, now_s, apply) if place.file else _on_server(place, now_s, apply)
        )
        ahead, replaced = set_back
        report = _report(place, ahead, replaced)
        if apply:
            asyncio.run(accept_end(place, home.folder))
            ClockNote(home.clock_file).write(now_s)
            _note(home.folder / NOTES_FILE, now_s, report)
    except CannotSetBack as error:
        what, _, remedy = str(error).partition("; remedy: ")
        raise failed(Exit.FAILED, what, place.text, remedy) from None
    except StoreError as error:
        raise store_error(error, place.text) from None
    finally:
        os.close(lock)
    emit(report, form(config), lambda: _text(report))


def _in_file(path: Path, now_s: float, apply: bool) -> tuple[Ahead, str]:
    """Return how far a file's log is ahead, and with ``apply`` where the one of before is now."""
    ahead = time_repair.find(recover.records(path), now_s)
    if not apply:
        return ahead, ""
    copy = path.with_name(path.name + ".time-set-back")
    try:
        _remove(copy)
        made = time_repair.set_back(recover.records(path), ahead)
        recover.rewrite(path, copy, made)
        sqlite_backup.verified(copy)
        return ahead, str(sqlite_backup.restore(copy, path))
    finally:
        _remove(copy)


def _on_server(place: StoreSettings, now_s: float, apply: bool) -> tuple[Ahead, str]:
    """Do the same on a server, where the log of before is a collection; and write the rows again,
    which users read."""
    store = place.make()
    assert isinstance(store, MongoStore)
    with asyncio.Runner() as runner:
        try:
            runner.run(store.open())
            if runner.run(origin(store)).seq:
                raise StoreError(f"{place.text}: its log has no beginning; remedy: {NO_BEGINNING}")
            ahead = time_repair.find(_records(runner, store), now_s)
            if not apply:
                return ahead, ""
            runner.run(store.begin_copy())
            try:
                made = time_repair.set_back(_records(runner, store), ahead)
                while batch := tuple(itertools.islice(made, BATCH)):
                    runner.run(store.add_to_copy(batch))
                kept = runner.run(store.put_copy_in_place(ahead.last_seq))
            finally:
                runner.run(store.abandon_copy())
            runner.run(audit(store, repair=True))
            return ahead, f"the collection {kept}"
        finally:
            runner.run(store.close())


def _records(runner: asyncio.Runner, store: Store) -> Iterator[LogRecord]:
    reading = store.read(0)
    try:
        while True:
            yield runner.run(_next(reading))
    except StopAsyncIteration:
        return


async def _next(reading: AsyncIterator[LogRecord]) -> LogRecord:
    return await anext(reading)


def _report(place: StoreSettings, ahead: Ahead, replaced: str) -> TimeReport:
    numbers = (ahead.seq, ahead.last_seq, ahead.by_s, ahead.from_s, ahead.ends_s)
    return TimeReport(place.text, *numbers, applied=bool(replaced), replaced=replaced)


def _remove(copy: Path) -> None:
    """Remove the copy, and what an interrupted command left of one."""
    for part in copy.parent.glob(f"{copy.name}*"):
        part.unlink()


def _note(path: Path, now_s: float, report: TimeReport) -> None:
    line = {"at_s": now_s, "by": getpass.getuser(), "command": "db set-time-back"}
    try:
        fd = foreign.descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(fd, f"{json.dumps(line | asdict(report))}\n".encode())
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        what = f"the times are set back, but this could not be noted: {error.strerror}"
        remedy = f"write it down: the store of before is {report.replaced}"
        raise failed(Exit.FAILED, what, str(path), remedy) from None


def _text(report: TimeReport) -> str:
    ahead = timedelta(seconds=round(report.by_s))
    lines = [
        f"{report.store}: the log is {ahead} (h:mm:ss) ahead of this machine's clock, since record "
        f"{report.from_seq} of {report.last_seq} ({_time(report.from_s)})",
        f"its newest record says {_time(report.ends_s)}; this machine says "
        f"{_time(report.ends_s - report.by_s)}",
    ]
    if not report.applied:
        lines += ["to set these times back: reshape db set-time-back --apply"]
        return "\n".join(lines)
    return "\n".join(
        [
            *lines,
            f"the times since then are set back; the store of before is now {report.replaced}",
            "start the daemon: it begins a higher epoch, and gives out no GPU before each "
            "container has answered",
        ]
    )


def _time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
