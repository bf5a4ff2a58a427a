"""The pictures of README and docs: ``python -m tests.page.pictures`` writes them.

Does: opens the page of a replay that is cut off in the middle, so that jobs run and wait, and takes
pictures of three views in both themes. State: docs/figures/page-*.png.
"""

from __future__ import annotations

import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

from tests.page.bed import CHROMIUM, DEADLINE_MS, FLAGS, past_run
from tests.support.daemon_bed import ROOT

FIGURES = ROOT / "docs/figures"
VIEWS = {
    "overview": "",
    "gpus": "gpus",
    "job": "job/job-1",
}
THEMES = ("light", "dark")
WIDTH, HEIGHT = 1280, 800
COLOURS = 192
"""Colours of a picture: enough for text on plain grounds, and a fifth of the bytes."""
PART = 0.6
"""Part of the replay after which it is cut off."""


def main() -> None:
    """Write the pictures."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        with past_run(Path(folder), part=PART) as url:
            for theme in THEMES:
                page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
                page.set_default_timeout(DEADLINE_MS)
                page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
                page.goto(url)
                page.wait_for_selector("main h1")
                for name, view in VIEWS.items():
                    _write(page, view, FIGURES / f"page-{name}-{theme}.png")
        browser.close()


def _write(page: Page, view: str, path: Path) -> None:
    page.evaluate(f"location.hash = '#/{view}'")
    page.wait_for_selector("canvas" if view == "gpus" else "main table, main .phases")
    expect(page.locator("[aria-busy=true]")).to_have_count(0, timeout=DEADLINE_MS)
    page.evaluate("document.activeElement.blur()")
    picture = Image.open(BytesIO(page.screenshot()))
    picture.convert("RGB").quantize(COLOURS).save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1024} kB")


if __name__ == "__main__":
    main()
