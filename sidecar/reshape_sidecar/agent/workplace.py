"""The folder in which training runs: the code, or a copy where the code cannot be written.

Does: fills the job's own working folder, which outlives the container, with the code, so that an
unmodified script may write beside itself. Small files are copied; a large one, a link and what is
beyond the bounds is a link to the code's own. A later attempt copies what is newer in the code, and
leaves alone what the program has written since. Several workers may do so at once. Never: change
the code.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections import deque
from pathlib import Path

from reshape_sidecar import foreign

COPY_BYTES_MAX = 16 << 20
"""Largest file that is copied."""
TOTAL_BYTES_MAX = 256 << 20
ENTRIES_MAX = 20_000
"""Bounds of all that is copied; a folder that exceeds them is a link."""


class NoWorkplace(Exception):
    """Training has no folder to write in; the message says why, with the remedy."""


def folder_for(code: Path, work: Path | None) -> Path:
    """Return the folder in which training runs, filled. ``work``: the job's own; None: there is
    none, and training runs in ``code``. Raises NoWorkplace."""
    if work is None or (code != work and _can_write(code)):
        return code
    try:
        work.mkdir(parents=True, exist_ok=True)
        if code != work and code.is_dir():
            _fill(work, code)
    except OSError as error:
        raise NoWorkplace(
            f"working folder {work} cannot be filled ({error}); make the folder of the checkpoints"
            f" writable for uid {os.geteuid()}, and free space there"
        ) from None
    return work


def _can_write(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def _fill(work: Path, code: Path) -> None:
    entries, total_bytes = 0, 0
    folders = deque([Path()])
    while folders:
        inside = folders.popleft()
        names = sorted(os.listdir(code / inside))
        entries += len(names)
        for name in names:
            source, target = code / inside / name, work / inside / name
            found = source.lstat()
            if not os.access(source, os.R_OK):
                _link(target, source)  # the script may need no more of it than its name
            elif stat.S_ISDIR(found.st_mode) and entries < ENTRIES_MAX:
                with contextlib.suppress(FileExistsError):
                    target.mkdir()
                if stat.S_ISDIR(target.lstat().st_mode):  # no link of the program's
                    folders.append(inside / name)
            elif (
                stat.S_ISREG(found.st_mode)
                and found.st_size <= COPY_BYTES_MAX
                and total_bytes + found.st_size <= TOTAL_BYTES_MAX
            ):
                total_bytes += found.st_size
                _copy(source, target, found)
            else:
                _link(target, source)


def _link(target: Path, source: Path) -> None:
    with contextlib.suppress(FileExistsError):
        target.symlink_to(source)


def _copy(source: Path, target: Path, found: os.stat_result) -> None:
    """Copy a file unless there is one as new, or something else."""
    with contextlib.suppress(FileNotFoundError):
        there = target.lstat()
        if not stat.S_ISREG(there.st_mode) or there.st_mtime_ns >= found.st_mtime_ns:
            return
    temporary = target.with_name(f".{os.urandom(8).hex()}")
    try:
        temporary.write_bytes(foreign.read(source, COPY_BYTES_MAX))
        temporary.chmod(stat.S_IMODE(found.st_mode) | stat.S_IWUSR | stat.S_IRUSR)
        os.utime(temporary, ns=(found.st_atime_ns, found.st_mtime_ns))
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
