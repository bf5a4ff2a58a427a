"""Numbered lines through a bounded log and a slow reader: ``python -m tests.support.log_lines``.

Does: writes numbered lines to a log at a steady rate, while its oldest part is freed as init does
it; reads it as the API does, with pauses; and compares each byte that was read, and each gap that
was reported, with what was written.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reshape_controller.http.logs import read
from reshape_sidecar.init import logs

LINE_BYTES = 128
BLOCK_LINES = 1 << 12
FREE_EVERY_S = 0.2
"""Pause between two looks of init's part; init itself looks every 10 s."""


def lines(first: int, count: int) -> bytes:
    """Numbered lines, all of the same length."""
    return b"".join(b"%0127d\n" % number for number in range(first, first + count))


@dataclass
class Reader:
    """Reads the log by offsets, and keeps account of it."""

    path: Path
    pause_s: float
    dice: random.Random
    at: int = 0
    read_bytes: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Begin and length of each reported gap."""
    wrong: list[int] = field(default_factory=list)
    """Offsets at which other bytes were read than were written."""

    def take(self) -> bool:
        """Read the next part; return whether there was one."""
        chunk = read(self.path, 1, self.at, 0)
        if chunk is None:
            return False
        assert chunk.missed is not None, "the file was emptied"
        if chunk.missed:
            self.gaps.append((self.at, chunk.missed))
        begin, data = chunk.offset, chunk.data
        first = begin // LINE_BYTES
        expected = lines(first, len(data) // LINE_BYTES + 2)
        skip = begin - first * LINE_BYTES
        if data != expected[skip : skip + len(data)]:
            self.wrong.append(begin)
        self.read_bytes += len(data)
        self.at = chunk.next
        if self.dice.random() < 0.02:
            time.sleep(self.pause_s)
        return bool(data)


def _write(path: Path, size_bytes: int, bytes_per_s: float) -> None:
    begin_s, number = time.monotonic(), 0
    with path.open("ab", buffering=0) as log:
        while number * LINE_BYTES < size_bytes:
            log.write(lines(number, BLOCK_LINES))
            number += BLOCK_LINES
            ahead_s = number * LINE_BYTES / bytes_per_s - (time.monotonic() - begin_s)
            time.sleep(max(0.0, ahead_s))


def campaign(
    size_bytes: int, bytes_per_s: float, bound_bytes: int, pause_s: float, folder: Path
) -> dict[str, Any]:
    """Write, free and read at once. Raises AssertionError if a byte is neither read nor named."""
    path, over = folder / "training.log", threading.Event()
    path.touch()

    def free() -> None:
        while not over.wait(FREE_EVERY_S):
            logs.rotate(folder, bound_bytes)

    begin_s = time.monotonic()
    writer = multiprocessing.get_context("fork").Process(
        target=_write, args=(path, size_bytes, bytes_per_s)
    )
    writer.start()
    freer = threading.Thread(target=free)
    freer.start()
    reader, took_s = Reader(path, pause_s, random.Random(1)), 0.0
    while reader.take() or not took_s:
        if not took_s and not writer.is_alive():
            took_s = time.monotonic() - begin_s
    over.set()
    freer.join()
    logs.keep_end(folder, bound_bytes)
    while reader.take():
        pass
    written = os.stat(path).st_size
    missed = sum(length for _, length in reader.gaps)
    assert reader.wrong == [], f"other bytes than were written at {reader.wrong[:3]}"
    assert reader.read_bytes + missed == written, "a byte is neither read nor in a reported gap"
    assert os.stat(path).st_blocks * 512 <= bound_bytes + 2 * logs.HOLE_BYTES
    return {
        "written bytes": written,
        "lines": written // LINE_BYTES,
        "MB/s": round(written / 1e6 / took_s, 1),
        "read bytes": reader.read_bytes,
        "gaps": len(reader.gaps),
        "bytes in gaps": missed,
        "lost and not named": 0,
        "bytes on disk": os.stat(path).st_blocks * 512,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--mb-per-s", type=float, default=50.0)
    parser.add_argument("--bound-mib", type=int, default=64)
    parser.add_argument("--pause-s", type=float, default=0.5)
    parser.add_argument("--folder", type=Path, help="where the disk is")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        found = campaign(
            asked.mib << 20, asked.mb_per_s * 1e6, asked.bound_mib << 20, asked.pause_s, Path(name)
        )
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
