"""The living processes of an attempt, by its init's files and /proc; standard library only.

Does: finds init, the newest training process, and all processes of earlier starts. As a program
(``python -I -S PATH/init/look.py --folder F --job J --attempt N --generation G``) it prints the
pids as one JSON line: a launcher runs it inside a container. A reused pid is not taken for its
former process.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from reshape_sidecar import state_files
from reshape_sidecar.init import files
from reshape_sidecar.init import processes as proc
from reshape_sidecar.init.values import (
    INIT_FILE,
    LOCK_FILE,
    TRAINING_FILE,
    InitFile,
    TrainingProcess,
)
from reshape_sidecar.state_files import Torn

if TYPE_CHECKING:
    from reshape_sidecar.init.processes import Marker

_PROGRAM = b"/init/__main__.py"
"""End of the path of init's program."""


def processes_up_to(marker: Marker, generation: int, run: Path) -> list[int]:
    """Return the pids of living training processes that were started up to ``generation``.

    A descendant of init without a marker belongs to the newest start if it is younger than that,
    and to an earlier one otherwise.
    """
    procs = proc.snapshot()
    marked = proc.marked_by(marker, procs)
    old = {
        entry.proc.pid
        for entry in marked
        if entry.generation is not None and entry.generation <= generation
    }
    init = init_of(run)
    if init is not None:
        known = {entry.proc.pid for entry in marked}
        training = training_of(run)
        for child in proc.descendants(init.pid, procs):
            newer = (
                training is not None
                and training.generation > generation
                and child.start_time >= training.start_time
            )
            if child.pid not in known and not newer:
                old.add(child.pid)
    return sorted(old)


def init_of(run: Path) -> InitFile | None:
    """Return the attempt's init if it is alive. Raises OSError if its file is unreadable.

    A file that is torn, or that was removed, says nothing: then the processes are looked through.
    """
    init = state_files.read(InitFile, run / INIT_FILE)
    if isinstance(init, InitFile):
        same_boot = init.boot_id == files.boot_id()
        return init if same_boot and proc.alive(init.pid, init.start_time) else None
    if init is None and not (run / LOCK_FILE).exists():
        return None  # no init has begun here
    return _living_init(run)


def training_of(run: Path) -> TrainingProcess | None:
    """Return the newest training process that init has started, alive or not.

    None also for a torn file, until init has written it again: a release then counts more
    processes as old ones, not fewer.
    """
    training = state_files.read(TrainingProcess, run / TRAINING_FILE)
    return None if isinstance(training, Torn) else training


def _living_init(run: Path) -> InitFile | None:
    """Find the init of this folder by its command line."""
    folder = [b"--folder", os.fsencode(run.parent)]
    found = []
    for process in proc.snapshot().values():
        words = proc.command(process.pid)
        own = any(words[at : at + 2] == folder for at in range(len(words)))
        if own and not process.zombie and any(word.endswith(_PROGRAM) for word in words):
            found.append((process.start_time, process.pid))
    if not found:
        return None
    begin, pid = min(found)  # a child that init has forked a moment ago is younger
    return InitFile(pid, begin, files.boot_id())


def main() -> int:
    """Print ``{"pids": [...]}``; return 0 (a failure is a traceback and exit code 1)."""
    parser = argparse.ArgumentParser(prog="reshape-look")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--job", required=True)
    parser.add_argument("--attempt", type=int, required=True)
    parser.add_argument("--generation", type=int, required=True)
    options = parser.parse_args()
    run: Path = options.folder / "run"
    marker = proc.Marker(options.job, options.attempt, str(run / "agent.sock"))
    print(json.dumps({"pids": processes_up_to(marker, options.generation, run)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
