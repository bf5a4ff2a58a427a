"""The page of a replay by ``reshape show``: views, keys, accessibility, themes and sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.page.bed import DEADLINE_MS, NARROW, WIDE, Open, colours_on, is_wider, serious_findings
from tests.support.daemon_bed import eventually

pytestmark = pytest.mark.page
expect.set_options(timeout=DEADLINE_MS)
VIEWS = {"": "Overview", "gpus": "GPUs", "jobs": "Jobs", "hosts": "Hosts", "usage": "Usage"}


def go(page: Page, view: str, text: str) -> None:
    page.evaluate(f"location.hash = '#/{view}'")
    expect(page.get_by_role("heading", level=1, name=text, exact=True)).to_be_visible()
    expect(page.locator("[aria-busy=true]")).to_have_count(0)


def test_the_lanes_are_drawn_and_the_keyboard_leads_to_a_job(past: str, open_page: Open) -> None:
    page = open_page(past)
    expect(page.locator("header")).to_contain_text("a past run, read-only")
    expect(page.get_by_role("heading", name="Queue")).to_be_visible()  # the keys work by then
    page.keyboard.press("2")
    expect(page.get_by_role("region", name="Reshapes")).to_contain_text("→")
    eventually(lambda: colours_on(page) > 20, text=lambda: f"{colours_on(page)} colours")
    page.locator("canvas").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".readout")).to_contain_text("GPU 0")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("job-")
    expect(page.locator(".phases").first).to_be_visible()
    assert page.locator(".actions").count() == 0


def test_jobs_are_found_by_a_part_of_their_name_page_by_page(past: str, open_page: Open) -> None:
    page = open_page(past)
    go(page, "jobs", "Jobs")
    expect(page.locator(".pages")).to_contain_text("1 to 50 of 60 jobs")
    page.get_by_role("button", name="Next").click()
    expect(page.locator(".pages")).to_contain_text("51 to 60 of 60 jobs")
    page.fill("#search", "b-59")
    expect(page.locator(".pages")).to_contain_text("1 to 1 of 1 job")


def test_the_usage_is_saved_as_csv(past: str, open_page: Open) -> None:
    page = open_page(past)
    go(page, "usage", "Usage")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as CSV").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert lines[0].startswith("user,gpu_type,held_gpu_s,trained_gpu_s")
    assert len(lines) > 1


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("theme", "size"), [("light", WIDE), ("dark", NARROW)])
def test_no_view_has_a_serious_finding_or_scrolls_sideways(
    past: str, open_page: Open, theme: str, size: tuple[int, int]
) -> None:
    page = open_page(past, theme=theme, size=size)
    findings = []
    for view, text in {**VIEWS, "job/job-3": "job-3"}.items():
        go(page, view, text)
        findings += [f"{view}: {each}" for each in serious_findings(page)]
        assert not is_wider(page), view
    assert findings == []
