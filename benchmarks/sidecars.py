"""Does one daemon serve 700 SideCars that report every 5 s, without dropping a report?

    python benchmarks/sidecars.py [--sidecars 700] [--minutes 10] [--every-s 5]

FfDL's heavy load has 700 jobs. A real daemon (SQLite, real sockets) whose containers are lines of a
file; the SideCars are in this process, each on the link of the real agent: a held poll and a report
in turn, each over a connection of its own. A report is dropped if its answer is late by more than
the agent waits, is no answer of use, or its step is not what the API shows afterwards. Prints a
JSON document. Exit code 1 if a report was dropped or a SideCar was taken for silent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.light_bed import LightBed, Use, until, use_of  # noqa: E402
from tests.support.light_sidecars import LightSidecars  # noqa: E402

ASK_S = 1.0
"""Pause between two requests of a user."""
USE_S = 10.0
"""Pause between two readings of what the daemon uses."""
SETTLE_S = 10.0
"""Time after the last start before the counting begins."""


def percentile(values: list[float], share: float) -> float:
    """Return a percentile in milliseconds, 0 without values."""
    ordered = sorted(values)
    return (
        round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1e3, 1) if values else 0
    )


def figures(values: list[float]) -> dict[str, float]:
    """Return p50, p99 and maximum in milliseconds."""
    return {
        "p50": percentile(values, 0.5),
        "p99": percentile(values, 0.99),
        "max": percentile(values, 1),
    }


async def asked(bed: LightBed, key: str) -> list[float]:
    """Ask for a job every second until cancelled; return how long each answer took."""
    took_s: list[float] = []
    with suppress(asyncio.CancelledError):
        while True:
            begin_s = time.monotonic()
            await asyncio.to_thread(bed.job, key)
            took_s.append(time.monotonic() - begin_s)
            await asyncio.sleep(ASK_S)
    return took_s


async def sampled(pid: int) -> list[Use]:
    """Read what the daemon uses until cancelled."""
    found = [use_of(pid)]
    with suppress(asyncio.CancelledError):
        while True:
            await asyncio.sleep(USE_S)
            found.append(use_of(pid))
    found.append(use_of(pid))
    return found


async def measured(bed: LightBed, count: int, every_s: float, length_s: float) -> dict[str, Any]:
    """Bring the jobs to training, count for ``length_s`` seconds; return the figures."""
    sidecars = LightSidecars(bed.home / "jobs", every_s)
    running = asyncio.create_task(sidecars.run())
    await asyncio.to_thread(bed.submit_many, count)
    await until("all train", lambda: all(job["stage"] == "training" for job in bed.all_jobs()))
    await asyncio.sleep(SETTLE_S)
    assert bed.daemon is not None
    before = use_of(bed.daemon.pid)
    sidecars.clear()
    begin_s = time.monotonic()
    asking = asyncio.create_task(asked(bed, "light-0"))
    sampling = asyncio.create_task(sampled(bed.daemon.pid))
    await asyncio.sleep(length_s)
    took_s = time.monotonic() - begin_s
    counts = sidecars.counts
    asking.cancel()
    sampling.cancel()
    users_s, uses = await asking, await sampling
    jobs = await asyncio.to_thread(bed.all_jobs)
    behind = [
        job["id"] for job in jobs if sidecars.of[job["id"]].step - job["step"] > 2 * every_s / 0.1
    ]
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    return {
        "sidecars": len(sidecars.of),
        "seconds": round(took_s),
        "reports": counts.reports,
        "reports expected": round(count * took_s / every_s),
        "polls": counts.polls,
        "dropped": len(counts.dropped),
        "why": dict(sidecars.reasons()),
        "jobs whose step the API does not show": len(behind),
        "taken for silent": sum(not job["reachable"] for job in jobs),
        "starts of training": sum(each.starts for each in sidecars.of.values()),
        "report to answer (ms)": figures(counts.answers_s),
        "user's request to answer (ms)": figures(users_s),
        "daemon CPU (of one core)": round((uses[-1].cpu_s - before.cpu_s) / took_s, 3),
        "daemon RSS (MiB) first, last, max": [
            round(kib / 1024, 1)
            for kib in (uses[0].rss_kib, uses[-1].rss_kib, max(use.rss_kib for use in uses))
        ],
        "daemon descriptors, max": max(use.files for use in uses),
        "load of the machine": [round(load, 1) for load in os.getloadavg()],
    }


def main() -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sidecars", type=int, default=700)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--every-s", type=float, default=5.0)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as folder:
        bed = LightBed(Path(folder), options.sidecars)
        try:
            bed.start_daemon()
            bed.wait_until_it_answers()
            found = asyncio.run(
                measured(bed, options.sidecars, options.every_s, options.minutes * 60)
            )
        finally:
            bed.close()
    print(json.dumps(found, indent=2))
    lost = found["dropped"] or found["jobs whose step the API does not show"]
    return int(bool(lost or found["taken for silent"]))


if __name__ == "__main__":
    sys.exit(main())
