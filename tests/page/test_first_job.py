"""The page of a daemon without a job, and what it shows as the first ones come and end."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from playwright.sync_api import Page, expect

from tests.page.bed import DEADLINE_MS, LIVE, NARROW, Open, PageBed, is_wider, serious_findings
from tests.support.daemon_bed import ROOT, SAVES, SOURCES

pytestmark = pytest.mark.page
expect.set_options(timeout=DEADLINE_MS)
NO_JOB = "Submit the first job"


def heading(page: Page, text: str) -> None:
    expect(page.get_by_role("heading", name=text, exact=True)).to_be_visible()


def submit_as_shown(daemon: PageBed, command: str) -> None:
    """Run the command that the page shows, in a shell beside its record."""
    words = f'reshape() {{ "{sys.executable}" -m reshape_controller.cli.main "$@"; }}; {command}'
    environment = {
        **os.environ,
        "PYTHONPATH": ":".join(str(ROOT / name) for name in SOURCES),
        "RESHAPE_HOME": str(daemon.home),
    }
    done = subprocess.run(
        ["bash", "-c", words], cwd=daemon.code, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_the_first_job_is_submitted_by_the_record_and_the_command_that_are_shown(
    daemon: PageBed, open_page: Open
) -> None:
    page, phone = open_page.log_in(daemon), open_page.log_in(daemon, "jobs", size=NARROW)
    heading(page, NO_JOB)
    heading(phone, NO_JOB)
    expect(phone.get_by_text("No such job.")).to_have_count(0)
    assert serious_findings(page) == []
    assert not is_wider(phone)
    (daemon.code / "train.py").write_text(SAVES)
    record = page.get_by_role("region", name="A record").inner_text()
    (daemon.code / "my-job.yaml").write_text(f"{record}\nframework: other\n")
    submit_as_shown(daemon, page.get_by_role("region", name="The command").inner_text())
    expect(page.get_by_role("heading", name=NO_JOB)).to_have_count(0)
    daemon.becomes("my-job", state="completed")
    expect(page.get_by_role("region", name="Completed jobs")).to_contain_text("my-job")
    expect(phone.get_by_role("region", name="Jobs")).to_contain_text("my-job")


def test_the_newest_events_are_there_after_a_reload_and_name_their_jobs(
    daemon: PageBed, open_page: Open
) -> None:
    page = open_page.log_in(daemon)
    feed = page.locator(".feed")
    expect(feed).to_contain_text("completed")
    page.reload()
    page.wait_for_selector(LIVE)
    expect(feed).to_contain_text("completed")
    before = feed.locator("li").count()
    daemon.submit("later", steps=5, optional_gpus=[1])
    daemon.becomes("later", state="completed")
    expect(feed.locator("li", has_text="submitted").first).to_contain_text("later")
    keys = feed.locator("li").evaluate_all("all => all.map((li) => li.innerText)")
    assert len(keys) == len(set(keys))
    assert before <= len(keys) <= 20


def test_active_jobs_come_first_and_then_the_newest(daemon: PageBed, open_page: Open) -> None:
    daemon.submit("runs", steps=10**6, optional_gpus=[1])
    daemon.becomes("runs", stage="training")
    daemon.submit("ended", steps=1, optional_gpus=[1])
    daemon.becomes("ended", state="completed")
    page = open_page.log_in(daemon, "jobs")
    names = page.get_by_role("region", name="Jobs").locator("tbody a.job bdi")
    expect(names).to_have_text(["runs", "ended", "later", "my-job"])
    moment = page.locator("tbody time").first
    assert moment.get_attribute("title")
    page.select_option("select", label="completed")
    expect(names).to_have_text(["ended", "later", "my-job"])


def test_each_view_has_its_title(daemon: PageBed, open_page: Open) -> None:
    page = open_page.log_in(daemon)
    for view, title in (
        ("", "Overview"),
        ("gpus", "GPUs"),
        ("jobs", "Jobs"),
        ("hosts", "Hosts"),
        ("usage", "Usage"),
        ("job/runs", "runs"),
    ):
        page.evaluate(f"location.hash = '#/{view}'")
        expect(page).to_have_title(f"{title} · Reshape")
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_title("Log in · Reshape")


def test_the_log_of_a_job_shows_the_last_state_of_a_progress_bar(
    daemon: PageBed, open_page: Open
) -> None:
    script = r"print('\r 0%\r 50%\r100%\nsaved', flush=True)"
    daemon.submit("bar", script, steps=1, optional_gpus=[1])
    daemon.becomes("bar", state="completed")
    page = open_page.log_in(daemon, "job/bar")
    log = page.get_by_role("region", name="Log")
    expect(log).to_contain_text("saved")
    assert log.inner_text().split() == ["100%", "saved"]
