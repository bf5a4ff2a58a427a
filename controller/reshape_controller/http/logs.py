"""A job's log files, by byte offset: while it runs, after a crash, after its end.

Does: returns the last lines, or the bytes from an offset on, and can wait for more; says how many
bytes a slow reader has missed, because the oldest part of a long file is freed. It opens only
regular files of the log folder, follows no symbolic link below a job's folder, and holds no file
open between requests. The client remembers attempt and offset.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import time
from dataclasses import dataclass, replace
from pathlib import Path

from reshape_controller.core.model import Job
from reshape_controller.http.base import Handler
from reshape_controller.http.errors import bad_request, not_found
from reshape_controller.store.protocol import JobRow
from reshape_sidecar import foreign, state_files
from reshape_sidecar.init.logs import data_begin
from reshape_sidecar.init.values import TRAINING_LOG

PAGE_BYTES_MAX = 256 * 1024
"""Largest part of a file in one answer."""
TAIL_LINES = 200
"""Default number of last lines."""
TAIL_LINES_MAX = 100_000
WAIT_MAX_S = 30.0
"""Longest time for which a request waits for more."""
AUTHORIZE_S = 1.0
"""Longest time during that wait between two checks of the token."""
LOOKED_AT_MAX, NAMED_MAX = 1_000, 20
"""Entries of a folder that are looked at for names of log files, and names that are told."""
READS_MAX = 5
"""Tries to read a part that is freed meanwhile."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\.log")


@dataclass(frozen=True, slots=True)
class Chunk:
    """The bytes of an attempt's file from ``offset`` on; the file is ``size`` bytes long."""

    data: bytes
    attempt: int
    offset: int
    size: int
    missed: int | None = 0
    """Bytes before ``offset`` that were asked for and are gone; None: an unknown number."""

    @property
    def next(self) -> int:
        """Offset at which the next chunk begins."""
        return self.offset + len(self.data)


class JobLogs(Handler):
    """GET: the body is a part of the log, and the headers have the offset of the next part."""

    _is_closed = False

    def on_connection_close(self) -> None:
        super().on_connection_close()
        self._is_closed = True

    async def get(self, key: str) -> None:
        name = self.get_query_argument("file", TRAINING_LOG)
        if not _NAME.fullmatch(name):
            raise bad_request(f"{name!r} is not a log file name", "query file", "training.log")
        wait_s = self.number("wait_s", 0.0, 0.0, WAIT_MAX_S)
        waits = wait_s > 0
        tail = self.count("tail", TAIL_LINES, 0, TAIL_LINES_MAX)
        start: int | None = None
        if self.get_query_argument("offset", None) is not None:
            start = self.count("offset", 0)
        attempt = self.count("attempt", 0)
        until_s = time.monotonic() + wait_s
        missed: int | None = 0
        is_held = False
        with contextlib.ExitStack() as held:
            while True:
                row = await self.row(key)
                before = self._look(row, name)
                chunk = self._next_chunk(row, name, attempt, start, tail)
                if chunk is not None:
                    missed = _sum(missed, chunk.missed)
                    chunk = replace(chunk, missed=missed)
                ended, left_s = row.state.terminal, until_s - time.monotonic()
                if ended or left_s <= 0 or self._is_closed or (chunk is not None and chunk.data):
                    break
                if not is_held:
                    held.enter_context(self.context.room.hold(self.identity.name))
                    is_held = True
                if chunk is not None:
                    attempt, start = chunk.attempt, chunk.next
                look = functools.partial(self._look, row, name)
                pause_s = min(left_s, AUTHORIZE_S)
                await self.context.log_watch.changes((row.id, name), look, before, pause_s)
                self.authorize()  # the token may be revoked meanwhile
        if chunk is None:
            if not waits or ended:
                raise _no_log(row, name, self._folder(row))
            chunk = Chunk(b"", 0, 0, 0)
        self._write_chunk(chunk, ended and chunk.next >= chunk.size)

    def _look(self, row: JobRow, name: str) -> object:
        """Return something that differs once there may be more to read, without a query."""
        control = self.context.control
        job = control.live_job(row.id)
        if job is None or job.state.terminal:
            return control.shown_seq()  # until the tables show its end
        folder = control.log_folder(job)
        version = None if folder is None else state_files.version(folder / name)
        return job.attempt, job.state, version

    def _next_chunk(
        self, row: JobRow, name: str, attempt: int, start: int | None, tail: int
    ) -> Chunk | None:
        """The next bytes; those of a later attempt once an earlier one is read to its end."""
        job = row.job
        if job is None or job.attempt == 0:
            return None
        newest: Chunk | None = None
        for number in range(min(attempt, job.attempt) or job.attempt, job.attempt + 1):
            folder = self.context.control.log_folder(replace(job, attempt=number))
            chunk = None
            if folder is not None:
                within = without_links(folder, job.id)
                chunk = read(folder / name, number, start, tail, within)
            if chunk is not None:
                newest = chunk
                if chunk.data:
                    break
            if number == attempt or newest is not None:
                start = 0
        return newest

    def _folder(self, row: JobRow) -> Path | None:
        """Folder of the newest attempt's logs; None if it cannot be read here."""
        if row.job is None or row.job.attempt == 0:
            return None
        folder = self.context.control.log_folder(row.job)
        return folder if folder is not None and folder.is_dir() else None

    def _write_chunk(self, chunk: Chunk, ended: bool) -> None:
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.set_header("Reshape-Log-Attempt", str(chunk.attempt))
        self.set_header("Reshape-Log-Offset", str(chunk.offset))
        self.set_header("Reshape-Log-Next", str(chunk.next))
        self.set_header("Reshape-Log-Size", str(chunk.size))
        missed = "unknown" if chunk.missed is None else str(chunk.missed)
        self.set_header("Reshape-Log-Missed", missed)
        self.set_header("Reshape-Log-Ended", "true" if ended else "false")
        self.finish(chunk.data)


def without_links(folder: Path, job: str) -> Path:
    """Return where a folder of logs is if no folder of the job, which its user may write, is a
    link."""
    if job not in folder.parts:
        return folder
    at = folder.parts.index(job)
    return Path(*folder.parts[:at]).resolve().joinpath(*folder.parts[at:])


def read(
    path: Path, attempt: int, start: int | None, tail: int, within: Path | None = None
) -> Chunk | None:
    """Read up to a page of a file; None if it cannot be read.

    ``start``: the first byte; None: the last ``tail`` lines. ``within``: the folder that it must
    really be in.
    """
    try:
        fd = foreign.descriptor(path, follow=False, within=within)
    except OSError:
        return None
    try:
        for _ in range(READS_MAX):
            chunk = _chunk(fd, attempt, start, tail)
            # The oldest part may have been freed during the read.
            if data_begin(fd, os.fstat(fd).st_size) <= chunk.offset or not chunk.data:
                return chunk
        return None  # a program frees it without end
    finally:
        os.close(fd)


def _chunk(fd: int, attempt: int, start: int | None, tail: int) -> Chunk:
    size = os.fstat(fd).st_size
    first = data_begin(fd, size)
    missed: int | None = 0
    if start is None:
        begin = _tail_start(fd, size, tail, first)
    elif start <= size:
        begin = max(start, first)
        missed = begin - start
    else:  # a file that was copied and emptied
        begin, missed = first, None
    return Chunk(os.pread(fd, PAGE_BYTES_MAX, begin), attempt, begin, size, missed)


def _tail_start(fd: int, size: int, lines: int, first: int) -> int:
    """Offset at which the last ``lines`` lines begin, at most a page before the end."""
    if lines == 0:
        return size
    begin = max(first, size - PAGE_BYTES_MAX)
    data = os.pread(fd, size - begin, begin)
    at = len(data) - 1 if data.endswith(b"\n") else len(data)
    for _ in range(lines):
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            return begin
    return begin + at + 1


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _names(folder: Path) -> list[str]:
    """Return the names of some log files in a folder, in which a job may make any number."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        names = [entry.name for entry in itertools.islice(entries, LOOKED_AT_MAX)]
        return sorted(filter(_NAME.fullmatch, names))[:NAMED_MAX]
    return []


def _no_log(row: JobRow, name: str, folder: Path | None) -> Exception:
    job: Job | None = row.job
    if job is None:
        return not_found(f"{row.name} was rejected and never ran", f"reshape describe {row.id}")
    why = job.reason or row.state.value
    if folder is not None and name != TRAINING_LOG:
        there = ", ".join(_names(folder)) or "none yet"
        return not_found(f"{job.id} has no {name}", f"its log files: {there}")
    if folder is not None and row.state.terminal:
        what = f"{job.id} has no {name}: its training did not start: {why}"
        return not_found(what, f"reshape describe {job.id}")
    if folder is not None or job.attempt == 0:
        what = f"{job.id} has no {name} yet: {why}"
        return not_found(what, f"reshape logs -f {job.id} waits for it")
    return not_found(
        f"{job.id} has no {name} that can be read from here",
        "it was removed (keep_logs_days does so), or is on a volume claim: set storage_folder in "
        "the cluster file",
    )
