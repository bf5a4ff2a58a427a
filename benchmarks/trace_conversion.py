"""Conversion of a public trace beside reading the same file with the standard library's ``csv``.

    .venv/bin/python benchmarks/trace_conversion.py [--rows 100000] [--turns 5] [--bar 5]

Writes a trace with eleven columns, then reads it with ``csv.reader``, with ``csv.DictReader``, and
converts it to a workload file, in turns. Prints processor time and rows per second (median of the
turns), the ratios, and the peak memory of a process that converts. Ends with 1 if the conversion
takes more than ``--bar`` times as long as ``csv.DictReader``.
"""

from __future__ import annotations

import argparse
import csv
import io
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from reshape_controller.replay import traces
from reshape_controller.replay.conversion import Choices, Columns
from reshape_controller.replay.convert import convert
from reshape_profiles.loader import bundled

HEAD = (
    *("job_id", "user", "vc", "gpu_num", "cpu_num", "node_num"),
    *("state", "submit_time", "start_time", "end_time", "duration"),
)
COLUMNS = Columns(duration="duration", user="user", name="job_id")


def write_trace(path: Path, count: int) -> None:
    """Write a made-up trace."""
    random.seed(7)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEAD)
        for number in range(count):
            submit_s, wait_s = number * 37, random.randrange(600)
            seconds = int(random.lognormvariate(7.0, 2.0)) + 1
            start_s = submit_s + wait_s
            gpus, user = random.choice((1, 1, 2, 4, 8)), f"user-{number % 97}"
            writer.writerow(
                (
                    *(f"j{number}", user, "vc", gpus, gpus * 6, 1, "COMPLETED"),
                    *(submit_s, start_s, start_s + seconds, seconds),
                )
            )


def read(path: Path) -> None:
    with path.open(newline="") as file:
        for _ in csv.reader(file):
            pass


def read_by_name(path: Path) -> None:
    with path.open(newline="") as file:
        for _ in csv.DictReader(file):
            pass


def convert_all(path: Path) -> None:
    found = convert([path], COLUMNS, bundled(), Choices())
    traces.write_converted(found.jobs, io.StringIO(), jsonl=False)


def seconds(job: Callable[[Path], None], path: Path) -> float:
    before_s = time.process_time()
    job(path)
    return time.process_time() - before_s


def peak_memory_mb(path: Path) -> float:
    """Return the peak memory of a process of its own that converts."""
    ran = subprocess.run(
        [sys.executable, __file__, "--convert", str(path)], check=True, capture_output=True
    )
    return float(ran.stdout)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--bar", type=float, default=5.0)
    parser.add_argument("--convert", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.convert is not None:
        if given.convert.name != "none":
            convert_all(given.convert)
        status = Path("/proc/self/status").read_text()
        print(float(status.split("VmHWM:")[1].split()[0]) / 1024.0)
        return 0
    with tempfile.TemporaryDirectory(prefix="reshape-trace-") as folder:
        path = Path(folder) / "trace.csv"
        write_trace(path, given.rows)
        jobs = {"csv.reader": read, "csv.DictReader": read_by_name, "conversion": convert_all}
        times: dict[str, list[float]] = {name: [] for name in jobs}
        for _ in range(given.turns):
            for name, job in jobs.items():
                times[name].append(seconds(job, path))
        memory_mb, bare_mb = peak_memory_mb(path), peak_memory_mb(Path("none"))
    took = {name: median(values) for name, values in times.items()}
    for name, taken_s in took.items():
        print(f"{name:15} {taken_s:6.3f} s  {given.rows / taken_s:10,.0f} rows/s")
    ratio = took["conversion"] / took["csv.DictReader"]
    print(f"over csv.reader {took['conversion'] / took['csv.reader']:.1f}")
    print(f"over csv.DictReader {ratio:.1f} (bar {given.bar:g})")
    print(f"peak memory {memory_mb:.0f} MB; {bare_mb:.0f} MB without a conversion")
    return int(ratio > given.bar)


if __name__ == "__main__":
    sys.exit(main())
