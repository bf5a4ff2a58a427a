"""Init's own log lines, and the bound on the size of a container's log files.

Does: frees the oldest part of a file that is too long and leaves a hole there, so that nothing that
is written meanwhile is lost, and offsets stay. Where the file system has no holes, it copies the
file to NAME.1, empties it and writes a line into it that says how many bytes are gone. A full disk
is no error.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import sys
import time
from pathlib import Path

from reshape_sidecar import foreign

CHUNK_BYTES = 1 << 20
HOLE_BYTES = 1 << 16
"""A hole ends at a multiple of this, and so of every usual block."""
_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01  # FALLOC_FL_PUNCH_HOLE, FALLOC_FL_KEEP_SIZE


def write_line(text: str) -> None:
    """Write one line to init's own log; a full disk is no error."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with contextlib.suppress(OSError):
        print(f"{stamp} init: {text}", file=sys.stderr, flush=True)


def data_begin(fd: int, size: int) -> int:
    """Return where the data of a file of ``size`` bytes begins: behind its hole, if it has one."""
    try:
        return min(size, os.lseek(fd, 0, os.SEEK_DATA))
    except OSError as error:
        return size if error.errno == errno.ENXIO else 0  # only a hole; no holes here


def rotate(folder: Path, bytes_max: int) -> None:
    """Free the oldest part of each log file of ``folder``, down to its last ``bytes_max`` bytes."""
    for log in folder.glob("*.log"):
        with contextlib.suppress(OSError):
            if _is_long(log, bytes_max) and not _free_oldest(log, bytes_max):
                _copy_and_empty(log, bytes_max)


def keep_end(folder: Path, bytes_max: int) -> None:
    """Cut each log file to its last ``bytes_max`` bytes, after its writers have ended."""
    for log in folder.glob("*.log"):
        with contextlib.suppress(OSError):
            if _is_long(log, bytes_max) and not _free_oldest(log, bytes_max):
                copy = log.with_name(log.name + ".cut")
                try:
                    _copy_end(log, copy, bytes_max)
                    copy.chmod(log.stat().st_mode & 0o777)
                    copy.replace(log)
                finally:
                    copy.unlink(missing_ok=True)


def _is_long(log: Path, bytes_max: int) -> bool:
    fd = foreign.descriptor(log, follow=False)
    try:
        size = os.fstat(fd).st_size
        return size - data_begin(fd, size) > bytes_max
    finally:
        os.close(fd)


def _free_oldest(log: Path, bytes_max: int) -> bool:
    """Make the beginning of a file a hole; return False if the file system has none."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        fallocate = getattr(library, "fallocate64", None) or library.fallocate
    except (OSError, AttributeError):
        return False
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong)
    fd = foreign.descriptor(log, os.O_WRONLY, follow=False)
    try:
        # At least the last ``bytes_max`` bytes stay; the hole has whole blocks.
        end = (os.fstat(fd).st_size - bytes_max) // HOLE_BYTES * HOLE_BYTES
        return end <= 0 or fallocate(fd, _PUNCH_HOLE_KEEP_SIZE, 0, end) == 0
    finally:
        os.close(fd)


def _copy_and_empty(log: Path, bytes_max: int) -> None:
    """Copy a file's end to NAME.1 and empty it; say in it what is gone."""
    copied_to = _copy_end(log, log.with_name(log.name + ".1"), bytes_max)
    size = log.stat().st_size
    begin = copied_to - min(copied_to, bytes_max)
    line = (
        f"[reshape] the {size} bytes before this line were moved: bytes {begin} to {copied_to} "
        f"are in {log.name}.1, at least {size - copied_to} newer ones are lost\n"
    )
    fd = foreign.descriptor(log, os.O_WRONLY | os.O_APPEND, follow=False)
    try:
        os.ftruncate(fd, 0)
        os.write(fd, line.encode())
    finally:
        os.close(fd)


def _copy_end(log: Path, copy: Path, bytes_max: int) -> int:
    """Copy the last ``bytes_max`` bytes of ``log``; return the offset at which the copy ends."""
    copy.unlink(missing_ok=True)  # never into what another put there
    with foreign.reader(log, follow=False) as source, open(copy, "xb") as target:
        end = source.seek(0, os.SEEK_END)
        source.seek(max(0, end - bytes_max))
        left_bytes = bytes_max
        while left_bytes > 0 and (chunk := source.read(min(left_bytes, CHUNK_BYTES))):
            target.write(chunk)
            left_bytes -= len(chunk)
        return end
