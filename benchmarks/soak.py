"""Do memory, descriptors and threads of a daemon stay flat under a stream of short jobs?

    python benchmarks/soak.py [--minutes 30] [--jobs 4]

A real daemon with four simulated GPUs on a SQLite store; ``--jobs`` short elastic jobs are there at
any time, so that most starts take GPUs from a job that trains; each has real processes. Reads RSS,
open descriptors and threads from /proc every 10 s. Prints a table by parts of the run and the slope
after the first third. Exit code 1 if the memory grows by more than 5 % after that third.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.daemon_bed import SAVES, Bed, bed  # noqa: E402
from tests.support.light_bed import Use, use_of  # noqa: E402

SAMPLE_S = 10.0
LOOK_S = 0.5
"""Pause between two looks for jobs that are over."""
OVER = ("completed", "failed", "cancelled")
PARTS = 6
"""Rows of the table."""
GROWTH_MAX = 0.05
STEPS = 15
"""Length of a job, in steps of 0.1 s."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What the daemon uses at a moment."""

    at_s: float
    use: Use
    jobs: int
    """Jobs that are over by then."""


class Stream:
    """Jobs that follow each other, and what the daemon's process holds meanwhile."""

    def __init__(self, job: Bed, width: int) -> None:
        assert job.daemon is not None
        self._bed, self._width, self._pid = job, width, job.daemon.pid
        self._names = itertools.count()
        self._live: set[str] = set()
        self.over = dict.fromkeys(OVER, 0)
        self.samples: list[Sample] = []
        self._begin_s = time.monotonic()

    def run(self, length_s: float) -> None:
        """Keep the jobs coming for ``length_s`` seconds; sample on the way."""
        next_s = self._begin_s
        while (now_s := time.monotonic()) < self._begin_s + length_s:
            if now_s >= next_s:
                self.samples.append(self._sample())
                print(self.samples[-1], file=sys.stderr, flush=True)
                next_s += SAMPLE_S
            self._refill()
            time.sleep(LOOK_S)
        self.samples.append(self._sample())

    def _refill(self) -> None:
        for key in sorted(self._live):
            state = self._bed.job(key)["state"]
            if state in OVER:
                self.over[state] += 1
                self._live.discard(key)
        while len(self._live) < self._width:
            name = f"soak-{next(self._names)}"
            record = {
                "name": name,
                "command": ["python", "soak.py", str(STEPS)],
                "code": str(self._bed.code),
                "framework": "other",
                "optional_gpus": [1, 2, 4],
                "steps": STEPS,
                "may_restart": True,
            }
            status, job = self._bed.post("/v1/jobs", record)
            assert status == 201, job
            self._live.add(job["id"])

    def _sample(self) -> Sample:
        at_s = time.monotonic() - self._begin_s
        return Sample(at_s, use_of(self._pid), sum(self.over.values()))


def slope(samples: list[Sample]) -> tuple[float, float]:
    """Return the growth of RSS in KiB a minute and in KiB a job, by a line of least squares."""
    rss = [each.use.rss_kib for each in samples]
    by_time = statistics.linear_regression([each.at_s / 60 for each in samples], rss).slope
    by_job = statistics.linear_regression([each.jobs for each in samples], rss).slope
    return by_time, by_job


def table(samples: list[Sample]) -> str:
    """Return the samples as a table for docs/reliability.md, a row for each part of the run."""
    rows = [
        "| Minutes | Jobs over | RSS, median (MiB) | RSS, maximum | Descriptors | Threads | CPU |",
        "|---|---|---|---|---|---|---|",
    ]
    length = max(1, -(-len(samples) // PARTS))
    for begin in range(0, len(samples), length):
        part = samples[begin : begin + length]
        rss = [each.use.rss_kib / 1024 for each in part]
        took_s = part[-1].at_s - part[0].at_s
        cpu = (part[-1].use.cpu_s - part[0].use.cpu_s) / took_s if took_s else 0.0
        rows.append(
            f"| {part[0].at_s / 60:.0f} to {part[-1].at_s / 60:.0f} | {part[-1].jobs} "
            f"| {statistics.median(rss):.1f} | {max(rss):.1f} "
            f"| {min(e.use.files for e in part)} to {max(e.use.files for e in part)} "
            f"| {min(e.use.threads for e in part)} to {max(e.use.threads for e in part)} "
            f"| {cpu:.0%} |"
        )
    return "\n".join(rows)


def main() -> int:
    """Run the soak and print the table; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--jobs", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for job in bed(Path(folder)):
            (job.code / "soak.py").write_text(SAVES)
            job.up()
            stream = Stream(job, options.jobs)
            stream.run(options.minutes * 60)
    samples = stream.samples
    print(table(samples))
    later = samples[len(samples) // 3 :]
    minute, each = slope(later)
    growth = later[-1].use.rss_kib / later[0].use.rss_kib - 1
    print(f"\njobs: {stream.over}")
    print(
        f"after the first third: RSS {growth:+.1%}, {minute:+.0f} KiB a minute, {each:+.1f} a job"
    )
    return int(growth > GROWTH_MAX)


if __name__ == "__main__":
    sys.exit(main())
