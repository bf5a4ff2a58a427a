"""The page of a daemon with real jobs: reshapes, buttons, hostile texts, and a restart."""

from __future__ import annotations

import signal

import pytest
from playwright.sync_api import expect

from tests.page.bed import DEADLINE_MS, LIVE, Open, PageBed, colours_on
from tests.support.daemon_bed import SAVES, eventually

pytestmark = pytest.mark.page
expect.set_options(timeout=DEADLINE_MS)
HOSTILE = "<img src=x onerror=alert(1)>"
FOREVER = 10**6
LOUD = f"""
print({HOSTILE!r}, "\\x1b[31mred\\x1b[0m \\u202e", flush=True)
{SAVES}
"""
TRAINS = """
import time
from reshape_sidecar import session
job = session.start()
print("trains", flush=True)
while True:
    time.sleep(0.1)
    job.step_done(lambda folder: (folder / "state").write_text("all"))
"""
NOTES_THE_RESHAPE = """() => {
  const look = () => {
    if (window.reshapeSeenS || !document.body.innerText.includes("4 → 2")) return;
    window.reshapeSeenS = Date.now() / 1000;
  };
  const all = {subtree: true, childList: true, characterData: true};
  new MutationObserver(look).observe(document.body, all);
}"""


def test_a_real_reshape_shows_with_its_phases_and_the_decision_behind_it(
    daemon: PageBed, open_page: Open
) -> None:
    lanes = open_page.log_in(daemon, "gpus")
    overview = open_page.log_in(daemon)
    lanes.evaluate(NOTES_THE_RESHAPE)
    daemon.submit("first", LOUD, steps=FOREVER, optional_gpus=[2, 4])
    daemon.becomes("first", size=4, stage="training")
    daemon.submit("second", TRAINS, steps=FOREVER, optional_gpus=[2])
    daemon.becomes("second", stage="training")
    daemon.becomes("first", size=2, stage="training")

    reshapes = lanes.get_by_role("region", name="Reshapes")
    expect(reshapes).to_contain_text("4 → 2")
    (job,) = [job for job in daemon.get("/v1/timeline")["jobs"] if job["name"] == "first"]
    append_s = min(span["from_s"] for span in job["spans"] if span["size"] == 2)
    seen_s = lanes.evaluate("window.reshapeSeenS")
    print(f"the reshape was on the page {seen_s - append_s:.2f} s after its append")
    assert seen_s > append_s
    eventually(lambda: colours_on(lanes) > 8, text=lambda: f"{colours_on(lanes)} colours")
    running = overview.get_by_role("region", name="Running jobs")
    expect(running).to_contain_text("2 of 2, 4")
    expect(running).to_contain_text("s ago")
    lanes.evaluate("location.hash = '#/job/first'")
    expect(lanes.locator(".phases").first).to_contain_text("process stop")
    expect(lanes.get_by_role("region", name="Options of the decision").first).to_contain_text(
        "chosen"
    )
    expect(lanes.get_by_role("heading", level=1, name="first")).to_be_visible()
    expect(lanes.get_by_text("2 GPUs of it went to")).to_contain_text("second")
    lanes.locator(".links a", has_text="second").first.click()
    expect(lanes.get_by_role("heading", level=1, name="second")).to_be_visible()
    lanes.get_by_role("link", name="GPUs at that time").first.click()
    expect(lanes.get_by_role("region", name="Reshapes")).to_contain_text("4 → 2")
    expect(lanes.get_by_role("link", name="Show now")).to_be_visible()


def test_names_records_and_logs_are_text(daemon: PageBed, open_page: Open) -> None:
    page = open_page.log_in(daemon, "job/first")
    log = page.get_by_role("region", name="Log")
    expect(log).to_contain_text(HOSTILE)
    assert "\u202e" not in log.inner_text()
    assert "\x1b" not in log.inner_text()
    assert page.locator("img[src=x]").count() == 0
    (daemon.code / HOSTILE).write_text(SAVES)
    status, answer = daemon.post(
        "/v1/jobs",
        {
            "name": "strange",
            "command": ["python", HOSTILE, "{{7*7}}"],
            "code": str(daemon.code),
            "framework": "other",
            "optional_gpus": [4],
            "user": HOSTILE,
        },
    )
    assert status == 201, answer
    page.evaluate("location.hash = '#/job/strange'")
    page.get_by_text("Record", exact=True).click()
    expect(page.locator(".record")).to_contain_text(HOSTILE)
    assert page.locator("img[src=x]").count() == 0
    daemon.post("/v1/jobs/strange/cancel", {})


def test_a_killed_daemon_comes_back_and_no_event_is_lost_or_shown_twice(
    daemon: PageBed, open_page: Open
) -> None:
    page = open_page.log_in(daemon)
    begin = daemon.get("/v1/status")["seq"]
    daemon.post("/v1/jobs/second/pause", {})
    feed = page.locator(".feed li")
    expect(page.locator(".feed")).to_contain_text("halt-asked")
    daemon.stop(signal.SIGKILL)
    expect(page.locator(".session")).to_contain_text("connection lost")
    daemon.up()
    page.wait_for_selector(LIVE)
    daemon.post("/v1/jobs/second/cancel", {})
    of_second = page.locator(".feed li").filter(has_text="second")
    expect(of_second.filter(has_text="cancelled")).to_have_count(1)
    kinds = {"halt-asked", "controller-started", "cancelled"}
    entries = [
        (int(item.get_attribute("data-seq") or 0), item.locator("code").inner_text())
        for item in feed.all()
    ]
    shown = sorted(entry for entry in entries if entry[0] > begin and entry[1] in kinds)
    assert len(shown) == len(set(shown))
    assert [kind for _, kind in shown].count("controller-started") == 1, "it came meanwhile"
    assert [kind for _, kind in shown].count("cancelled") == 1


def test_a_job_is_pinned_paused_resumed_and_cancelled_by_the_buttons(
    daemon: PageBed, open_page: Open
) -> None:
    daemon.submit("third", steps=FOREVER, optional_gpus=[1, 2])
    page = open_page.log_in(daemon, "job/third")
    page.select_option(".actions select", "1")
    expect(page.locator(".facts")).to_contain_text("fixed: 1")
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Keep it").click()
    assert daemon.get("/v1/jobs/third")["state"] != "cancelled"
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Yes, cancel it").click()
    expect(page.locator(".facts")).to_contain_text("cancelled")
    expect(page.locator(".actions")).to_have_count(0)


def test_the_view_of_a_job_asks_for_nothing_while_nothing_happens(
    daemon: PageBed, open_page: Open
) -> None:
    daemon.becomes("second", state="cancelled", stage="none")
    page = open_page.log_in(daemon)
    page.clock.install()
    page.evaluate("location.hash = '#/job/second'")
    expect(page.get_by_role("region", name="Log")).to_contain_text("trains")
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    before = len(open_page.asked)
    page.clock.fast_forward(120_000)
    page.evaluate("async () => { await fetch('icon.svg?last'); }")
    assert [url for url in open_page.asked[before:] if "/v1/" in url] == []


def test_a_wrong_token_opens_nothing_and_a_logout_ends_the_session(
    daemon: PageBed, open_page: Open
) -> None:
    page = open_page(f"{daemon.url}/")
    page.fill("#token", "no-such-token")
    page.click("button[type=submit]")
    expect(page.get_by_role("alert")).to_contain_text("wrong")
    page.fill("#token", daemon.token)
    page.click("button[type=submit]")
    expect(page.locator("h1")).to_have_text("Overview")
    page.get_by_role("button", name="Log out").click()
    expect(page.locator("#token")).to_be_visible()
    page.reload()
    expect(page.locator("#token")).to_be_visible()
    page.goto(f"{daemon.url}/page/#/?token={daemon.token}")
    page.reload()
    expect(page.locator("#token")).to_be_visible()


def test_a_view_that_only_follows_events_sees_the_end_of_its_session(
    daemon: PageBed, open_page: Open
) -> None:
    page = open_page.log_in(daemon, "gpus")
    expect(page.locator(LIVE)).to_be_visible()
    page.evaluate(
        """async () => {
          const { csrf } = await (await fetch("/v1/session")).json();
          await fetch("/v1/session", { method: "DELETE", headers: { "X-Reshape-CSRF": csrf } });
        }"""
    )
    expect(page.locator("#token")).to_be_visible()
