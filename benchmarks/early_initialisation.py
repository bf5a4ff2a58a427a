"""GPU-seconds without a step while a running job gives GPUs to a newcomer, before and after.

    python benchmarks/early_initialisation.py [--repeats 3]

Real daemons and SideCars on four simulated GPUs. A job that saves on SIGTERM trains on all four; a
newcomer of TensorFlow gets two of them. *Before*: the donor is asked as soon as the newcomer's
container is up. *After*: once the newcomer has imported its framework. The two take turns, so that
load on the machine falls on both alike. Prints for each the medians of

- *idle*: end of the donor's save to the newcomer's first step: the given GPUs make no step;
- *first step*: the newcomer's launch to its first step.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support import daemon_bed  # noqa: E402
from tests.support.daemon_bed import PROGRAM, Bed  # noqa: E402

PROGRAMS = {"before": "donor_without_wait", "after": PROGRAM}
WAIT_S = 600.0
SCRIPT = """
import keras
import numpy
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(numpy.ones((16, 4)), numpy.ones((16, 1)), batch_size=8, epochs=10, verbose=0)
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One hand-over. ``load``: that of the machine when it began."""

    idle_s: float
    first_step_s: float
    load: float


class BenchmarkBed(Bed):
    """A bed whose daemon may be a module of this folder."""

    def environment(self, **more: str) -> dict[str, str]:
        """Add this folder to the packages."""
        found = super().environment(**more)
        return found | {"PYTHONPATH": f"{found['PYTHONPATH']}:{Path(__file__).parent}"}


@contextmanager
def daemon(program: str) -> Iterator[Bed]:
    """A daemon of a program."""
    with tempfile.TemporaryDirectory() as folder:
        bed = BenchmarkBed(Path(folder))
        try:
            bed.up("--preset", "paper", program=program)
            yield bed
        finally:
            bed.close()


def measure(program: str) -> Row:
    """Return the times of one hand-over."""
    load = os.getloadavg()[0]
    with daemon(program) as bed:
        donor = bed.submit("donor", steps=10_000_000)
        bed.reaches(donor, "running", size=4)
        fields: dict[str, Any] = {"framework": "tensorflow", "optional_gpus": [2], "max_wait_s": 1}
        newcomer = bed.submit("newcomer", SCRIPT, **fields)
        bed.reaches(newcomer, "completed")
        gave, came = bed.entries(donor), bed.entries(newcomer)
    stopped_s, begun_s = at_s(gave, "stopping"), at_s(came, "first-step")
    return Row(begun_s - stopped_s, begun_s - at_s(came, "launched"), load)


def at_s(entries: list[dict[str, Any]], kind: str) -> float:
    """Return the time of the first entry of a kind."""
    return min(float(entry["at_s"]) for entry in entries if entry["kind"] == kind)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    daemon_bed.DEADLINE_S = WAIT_S
    rows: dict[str, list[Row]] = {name: [] for name in PROGRAMS}
    for repeat in range(repeats):
        for name in list(PROGRAMS)[:: 1 if repeat % 2 == 0 else -1]:
            rows[name].append(measure(PROGRAMS[name]))
            print(name, rows[name][-1], flush=True)
    for name, own in rows.items():
        idle = [row.idle_s for row in own]
        first = [row.first_step_s for row in own]
        print(
            f"{name:7} idle {statistics.median(idle):.1f} s ({min(idle):.1f} to {max(idle):.1f}), "
            f"first step {statistics.median(first):.1f} s ({min(first):.1f} to {max(first):.1f}), "
            f"load {min(row.load for row in own):.0f} to {max(row.load for row in own):.0f}"
        )


if __name__ == "__main__":
    main()
