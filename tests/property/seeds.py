"""Many seeds of a random test, by command, on all cores.

``python -m tests.property.random_plans SEEDS`` (also ``random_handovers`` and ``random_sidecars``)
tries the seeds from 0; ``--from`` begins at a later seed, ``--workers`` sets the number of
processes. Every 1,000 seeds a line says up to which seed all were tried, so that an ended run can
go on from there. A seed that fails prints the command that repeats it.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing import Pool

CHUNK_SEEDS = 50
"""Seeds that a process tries before it returns their results."""
REPORT_SEEDS = 1000
Run = Callable[[int], int]
"""Tries a seed; returns a count, of what the seeds do most."""


def _nothing() -> None:
    """Prepare nothing."""


class _Worker:
    """What a process of the pool tries; set after its fork."""

    run: Run


def _begin_worker(run: Run, prepare: Callable[[], None]) -> None:
    """Prepare a process: a seed leaves little garbage."""
    _Worker.run = staticmethod(run)
    prepare()
    gc.freeze()
    gc.set_threshold(100_000)


def _tried(seed: int) -> tuple[int, int, str]:
    try:
        return seed, _Worker.run(seed), ""
    except Exception:
        return seed, 0, traceback.format_exc()


def try_all(
    module: str,
    run: Run,
    unit: str,
    prepare: Callable[[], None],
    *,
    seeds: int,
    first: int,
    workers: int,
) -> int:
    """Try ``seeds`` seeds from ``first``; return how many failed.

    ``module``: what ``python -m`` runs to repeat a seed. ``unit``: what ``run`` counts.
    """
    failed = total = 0
    began_s = time.monotonic()
    with Pool(workers, _begin_worker, (run, prepare)) as pool:
        tried = pool.imap(_tried, range(first, first + seeds), CHUNK_SEEDS)
        for number, (seed, count, error) in enumerate(tried, 1):
            total += count
            if error:
                failed += 1
                repeat = f"python -m {module} 1 --from {seed}"
                print(f"seed {seed} fails; repeat it: {repeat}\n{error}", flush=True)
            if number % REPORT_SEEDS == 0 or number == seeds:
                rate = number / (time.monotonic() - began_s)
                counts = f"{total} {unit}, {failed} seeds failed, {rate:.0f} seeds/s"
                print(f"seeds {first} to {seed}: {counts}", flush=True)
    return failed


def main(module: str, run: Run, unit: str, prepare: Callable[[], None] = _nothing) -> int:
    """Try what the command line names; return the exit code."""
    parser = argparse.ArgumentParser(f"python -m {module}")
    parser.add_argument("seeds", type=int, help="number of seeds")
    parser.add_argument("--from", dest="first", type=int, default=0, help="first seed")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")
    given = parser.parse_args(sys.argv[1:])
    counts = {"seeds": given.seeds, "first": given.first, "workers": given.workers}
    return int(try_all(module, run, unit, prepare, **counts) > 0)
