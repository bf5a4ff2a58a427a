"""Measure the page of a daemon with many jobs, in a real browser.

    python benchmarks/page.py [--jobs 10000] [--gpus 64] [--pages 10] [--idle-s 30]

Starts a daemon whose containers are lines of a file, fills its queue by arrays, and opens its page
in Chromium (/usr/bin/chromium). Prints the first paint (best and median of the openings), the time
of the answer with the queue, what an open page receives while nothing happens, the share of one
core that the daemon takes with no page and with all pages open, and the load of the machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.page.bed import CHROMIUM, FLAGS, LIVE, WIDE, Open, PageBed  # noqa: E402
from tests.support.light_bed import LightBed, use_of  # noqa: E402

MEMBERS = 500
"""Jobs of an array, at most."""
OPENINGS = 5
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"


class Crowded(LightBed, PageBed):
    """A daemon that starts no process, and its page."""


def fill(bed: LightBed, jobs: int) -> None:
    """Submit jobs that wait, in arrays."""
    for number in range(0, jobs, MEMBERS):
        record = {
            **{"name": f"waits-{number}", "user": "ada", "command": ["python", "train.py"]},
            **{"code": str(bed.code), "framework": "other", "optional_gpus": [1, 2, 4]},
            **{"steps": 1000, "max_wait_s": 1e6},
            "array": {"N": list(range(min(MEMBERS, jobs - number)))},
        }
        status, answer = bed.post("/v1/arrays", record)
        assert status == 201, answer


def paint_s(page: Page, url: str) -> float:
    """Load a page again; return the seconds until the browser has drawn something of it."""
    page.goto("about:blank")
    page.goto(url)
    while (paint_ms := page.evaluate(PAINT)) is None:
        page.wait_for_timeout(100)
    return float(paint_ms) / 1000


def queue_s(page: Page) -> float:
    """Return the seconds of the request that the overview and its queue are drawn from."""
    script = """async () => {
        const begin = performance.now();
        const answer = await fetch('/v1/overview');
        await answer.text();
        return performance.now() - begin;
    }"""
    return statistics.median(float(page.evaluate(script)) / 1000 for _ in range(OPENINGS))


def received_bytes(page: Page, idle_s: float) -> float:
    """Return the bytes that a page receives in some seconds."""
    session = page.context.new_cdp_session(page)
    found: list[float] = []
    session.on("Network.dataReceived", lambda event: found.append(event["encodedDataLength"]))
    session.send("Network.enable")
    page.wait_for_timeout(1000 * idle_s)
    return sum(found)


def core_share(pid: int, page: Page, seconds: float) -> float:
    """Return the share of one core that a process takes for some seconds."""
    before, begin_s = use_of(pid).cpu_s, time.monotonic()
    page.wait_for_timeout(1000 * seconds)
    return (use_of(pid).cpu_s - before) / (time.monotonic() - begin_s)


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--gpus", type=int, default=64)
    parser.add_argument("--pages", type=int, default=10)
    parser.add_argument("--idle-s", type=float, default=30.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bed = Crowded(Path(folder), options.gpus)
        try:
            bed.start_daemon()
            bed.wait_until_it_answers()
            fill(bed, options.jobs)
            measure(bed, options)
        finally:
            bed.close()
    return 0


def measure(bed: Crowded, options: argparse.Namespace) -> None:
    """Open pages of a daemon, and print what they cost."""
    assert bed.daemon is not None
    pid = bed.daemon.pid
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        blank = browser.new_page(viewport={"width": WIDE[0], "height": WIDE[1]})
        alone = core_share(pid, blank, options.idle_s)
        pages = Open(browser)
        first = pages.log_in(bed)
        paints = [paint_s(first, f"{bed.url}/page/#/") for _ in range(OPENINGS)]
        first.wait_for_selector(LIVE)
        queue = queue_s(first)
        idle = received_bytes(first, options.idle_s) / options.idle_s / 1000
        for _ in range(options.pages - 1):
            pages.log_in(bed)
        together = core_share(pid, blank, options.idle_s)
        browser.close()
    best, median = min(paints), statistics.median(paints)
    load = os.getloadavg()[0]
    print(f"{options.jobs} waiting jobs, {options.gpus} GPUs, load {load:.1f}")
    print(f"first paint: best {best:.2f} s, median {median:.2f} s")
    print(f"answer with the queue: {1000 * queue:.0f} ms")
    print(f"an idle page receives {idle:.1f} kB/s")
    print(f"daemon: {100 * alone:.1f} % of a core without a page, {100 * together:.1f} % with "
          f"{options.pages}")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
