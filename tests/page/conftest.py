"""A browser, and a daemon or a past run whose page it opens."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.page.bed import CHROMIUM, FLAGS, Open, PageBed, past_run


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium; the test fails with the remedy where it is missing."""
    if not Path(CHROMIUM).exists():
        pytest.fail(f"{CHROMIUM} is missing; apt-get install chromium, or make test-page as root")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageBed]:
    """A daemon with four simulated GPUs."""
    bed = PageBed(tmp_path_factory.mktemp("page"))
    try:
        bed.up()
        yield bed
    finally:
        # Playwright runs an event loop in this thread, and the clearance has its own.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(bed.close).result()


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a replay's page."""
    with past_run(tmp_path_factory.mktemp("past")) as url:
        yield url


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Opens pages; afterwards none of them has asked another machine, or reported an error."""
    found = Open(browser)
    yield found
    found.close()
