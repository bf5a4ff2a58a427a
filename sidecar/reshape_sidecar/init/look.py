"""What of an attempt is alive on this machine or in this container, by its init's files and /proc.

Does: finds init, the newest training process, and everything that earlier starts left. As a
program (``python -I -S PATH/init/look.py --folder F --job J --attempt N --generation G``) it prints
the pids as one JSON line: that is how a launcher looks into a container. Standard library only.
Never: believes the agent, signals anything, or takes a reused pid for its owner. State: none.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from reshape_sidecar import codec
from reshape_sidecar.init import files
from reshape_sidecar.init import processes as proc
from reshape_sidecar.init.values import INIT_FILE, TRAINING_FILE, InitFile, TrainingProcess

if TYPE_CHECKING:
    from reshape_sidecar.init.processes import Marker

T = TypeVar("T")


def processes_up_to(marker: Marker, generation: int, run: Path) -> list[int]:
    """Pids of living training processes of the attempt started at ``generation`` or before.

    A descendant of init without a marker belongs to the newest start if it is younger than that,
    and to an earlier one otherwise.
    """
    procs = proc.snapshot()
    marked = [entry for entry in proc.marked_processes(procs) if entry.marker == marker]
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
    """The attempt's init, if it is alive. Raises OSError if its file is there and unreadable."""
    found = _value(run / INIT_FILE, lambda text: codec.loads(InitFile, text))
    if found is None or found.boot_id != files.boot_id():
        return None
    return found if proc.alive(found.pid, found.start_time) else None


def training_of(run: Path) -> TrainingProcess | None:
    """The newest training process that init has started, alive or not."""
    return _value(run / TRAINING_FILE, lambda text: codec.loads(TrainingProcess, text))


def _value(path: Path, decode: Callable[[bytes], T]) -> T | None:
    try:
        return decode(path.read_bytes())
    except (FileNotFoundError, codec.CodecError):
        return None


def main() -> int:
    """Print ``{"pids": [...]}``; exit code 0, or 1 with a traceback where nothing can be told."""
    parser = argparse.ArgumentParser(prog="reshape-look")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--job", required=True)
    parser.add_argument("--attempt", type=int, required=True)
    parser.add_argument("--generation", type=int, required=True)
    asked = parser.parse_args()
    run: Path = asked.folder / "run"
    marker = proc.Marker(asked.job, asked.attempt, str(run / "agent.sock"))
    print(json.dumps({"pids": processes_up_to(marker, asked.generation, run)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
