"""What the page's tests use: a daemon with real jobs, the page of a replay, and a watched browser.

Does: opens pages and notes each request, error and dialog of theirs. Waits end after DEADLINE_MS.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page

from reshape_controller.replay.bundle import write_course
from tests.support.daemon_bed import ROOT, SOURCES, Bed, eventually
from tests.support.replay_bed import job, run, scene

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
DEADLINE_MS = 60_000
AXE = ROOT / "tests/page/vendor/axe.min.js"
SERIOUS = ("serious", "critical")
WIDE, NARROW = (1280, 900), (390, 844)
LIVE = ".link-live"


class PageBed(Bed):
    """A home whose daemon serves the page."""

    @property
    def url(self) -> str:
        """The daemon's URL."""
        found: str = json.loads((self.home / "address.json").read_text())["url"]
        return found

    @property
    def token(self) -> str:
        """The operator's token."""
        return (self.home / "token").read_text().strip()

    def get(self, path: str) -> Any:
        """The document of a path, which must be there."""
        status, found = self._ask(path)
        assert status == 200, found
        return found

    def becomes(self, name: str, **fields: object) -> Any:
        """Wait until a job has these values."""

        def there() -> Any:
            found = self.get(f"/v1/jobs/{name}")
            return found if all(found[key] == value for key, value in fields.items()) else None

        return eventually(there, text=lambda: f"{name}: {self.get(f'/v1/jobs/{name}')}")


class Open:
    """Opens pages in contexts of their own, and watches them."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self.asked: list[str] = []
        self.errors: list[str] = []

    def __call__(self, url: str, *, size: tuple[int, int] = WIDE, theme: Any = "light") -> Page:
        """Open a URL."""
        context = self._browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=theme
        )
        context.set_default_timeout(DEADLINE_MS)
        self._contexts.append(context)
        context.on("request", lambda request: self.asked.append(request.url))
        page = context.new_page()
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", lambda dialog: self._on_dialog(dialog))
        page.goto(url)
        return page

    def log_in(self, bed: PageBed, view: str = "", **more: Any) -> Page:
        """Open a view of a daemon's page, by its form."""
        page = self(f"{bed.url}/page/#/{view}", **more)
        page.fill("#token", bed.token)
        page.click("button[type=submit]")
        page.wait_for_selector(LIVE)
        return page

    def _on_dialog(self, dialog: Any) -> None:
        self.errors.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def close(self) -> None:
        """Close the pages, and check what they did."""
        for context in self._contexts:
            context.close()
        hosts = {urllib.parse.urlsplit(url).hostname for url in self.asked if "://" in url}
        assert hosts <= {"127.0.0.1"}, f"requests to {hosts}"
        assert self.errors == []


@contextlib.contextmanager
def past_run(folder: Path, jobs: int = 60, part: float = 1.0) -> Iterator[str]:
    """Give the URL of ``reshape show`` on a replay of some jobs.

    ``part``: of its log; one that is cut off shows jobs that run and wait.
    """
    write_replay(folder, jobs, "16xV100")
    if part < 1.0:
        log = folder / "log" / "adaptive-0.jsonl"
        lines = log.read_text().splitlines(keepends=True)
        log.write_text("".join(lines[: int(part * len(lines))]))
    environment = {
        "PYTHONPATH": ":".join(str(ROOT / name) for name in SOURCES),
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
    }
    words = [sys.executable, "-m", "reshape_controller.cli.main", "show", str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+/page/\S+", line)
            assert found is not None, line
            yield found[0]
        finally:
            process.terminate()


def write_replay(folder: Path, jobs: int, cluster: str) -> None:
    """Write the log of a replay in which jobs are reshaped."""
    given = scene(
        [job(f"job-{n}", 40.0 * n, 150 + 37 * (n % 7)) for n in range(jobs)], cluster=cluster
    )
    write_course(folder, "adaptive", run(given, "adaptive", keep=True))


def colours_on(page: Page) -> int:
    """Number of colours on the canvas."""
    return int(
        page.evaluate(
            """() => {
              const canvas = document.querySelector("canvas");
              if (!canvas || !canvas.width || !canvas.height) return 0;
              const {width, height} = canvas;
              const data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
              const found = new Set();
              for (let n = 0; n < data.length; n += 4) found.add(data.slice(n, n + 3).join());
              return found.size;
            }"""
        )
    )


def serious_findings(page: Page) -> list[str]:
    """Serious findings of axe about the page as it is."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE.read_text() + "\n;undefined")
    found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {node['html'][:120]}"
        for each in found["violations"]
        if each["impact"] in SERIOUS
        for node in each["nodes"]
    ]


def is_wider(page: Page) -> bool:
    """Whether the page scrolls sideways."""
    return bool(page.evaluate("() => document.documentElement.scrollWidth > window.innerWidth"))
