"""The figures of /metrics: their names, what they count, and who may see the names of jobs."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from reshape_controller.access.identities import Identities
from reshape_controller.access.identity import Role
from reshape_controller.access.token_file import NamedToken, TokenFile, digest
from reshape_controller.core.record import LogRecord
from reshape_controller.http import figures
from reshape_controller.http.figures import LogFigures, Reasons
from reshape_controller.http.timeline import TimelineReader
from reshape_controller.store.protocol import StoreError
from reshape_controller.store.sqlite.store import SqliteStore
from tests.support.http_bed import RECORD, TOKEN, Api, api, run

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(text: str) -> Samples:
    """Value of each sample, by its name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(found: Samples, name: str, **labels: str) -> float:
    """Sum of the samples of this name that have these labels."""
    wanted = set(labels.items())
    return sum(value for (each, has), value in found.items() if each == name and wanted <= has)


async def scrape(it: Api, **headers: str) -> Samples:
    return samples((await it.get("/metrics", **headers)).body.decode())


async def reshape(it: Api) -> str:
    """A job on four GPUs gives two of them to another job; return the id of the other."""
    await it.post("/v1/jobs", {**RECORD, "name": "first", "user": "ada"})
    await it.reaches("first", "running")
    record = {**RECORD, "name": "second", "optional_gpus": [2], "max_wait_s": 1}
    second: str = (await it.post("/v1/jobs", record)).json["id"]
    await it.reaches("second", "running")
    async with asyncio.timeout(20):
        while (await it.get("/v1/jobs/first")).json["stage"] != "training":
            await asyncio.sleep(0.02)
    return second


def documented() -> dict[str, set[str]]:
    """Labels of each metric in the tables of the document."""
    rows = re.findall(
        r"^\| `(reshape_\w+)(?:\{([\w,]+)\})?` \|", DOCUMENT.read_text(), re.MULTILINE
    )
    return {name: set(filter(None, labels.split(","))) for name, labels in rows}


def test_every_metric_is_documented_with_its_labels_and_nothing_else(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        second = await reshape(it)
        it.launcher.job(second).finish()
        await it.reaches("second", "completed")
        await it.get("/metrics")
        found: dict[str, set[str]] = {}
        text = (await it.get("/metrics")).body.decode()
        for family in text_string_to_metric_families(text):
            name = family.name + ("_total" if family.type == "counter" else "")
            if name.startswith("reshape_"):
                assert family.documentation, name
                labels = {label for sample in family.samples for label in sample.labels}
                found[name] = labels - {"le"}
        assert found == documented()

    run(tmp_path, test)


def test_a_reshape_is_counted_once_with_its_time_and_phases(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        second = await reshape(it)
        found = await scrape(it)
        down = {"direction": "down", "mechanism": "sidecar"}
        assert total(found, "reshape_reshapes_total") == 1
        zero = ("reshape_reshapes_total", frozenset({**down, "outcome": "failed"}.items()))
        assert found[zero] == 0, "a first failure is an increase"
        assert total(found, "reshape_reshapes_total", outcome="done", **down) == 1
        assert total(found, "reshape_reshape_seconds_count", outcome="done", **down) == 1
        assert total(found, "reshape_queue_wait_seconds_count") == 2
        assert total(found, "reshape_jobs_submitted_total") == 2
        assert total(found, "reshape_decisions_total") >= 2
        assert total(found, "reshape_decision_seconds_count") >= 2
        assert total(found, "reshape_store_append_seconds_count") >= 2
        assert total(found, "reshape_job_completion_seconds_count") == 0
        it.launcher.job(second).finish()
        await it.reaches("second", "completed")
        found = await scrape(it)
        assert total(found, "reshape_job_completion_seconds_count", state="completed") == 1

    run(tmp_path, test)


def test_the_gpu_seconds_of_a_host_are_its_gpus_times_the_time(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        await reshape(it)
        before = await scrape(it)
        await asyncio.sleep(0.3)
        after = await scrape(it)
        first, then = (
            total(each, "reshape_gpu_seconds_total", host="local") for each in (before, after)
        )
        assert 4 * 0.3 <= then - first < 4 * 5.0
        for key, value in before.items():
            if key[0] == "reshape_gpu_seconds_total":
                assert after[key] >= value, key

    run(tmp_path, test)


def test_no_counter_falls_after_a_scrape_during_an_append_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, may_append = asyncio.Event(), asyncio.Event()
    append = SqliteStore.append

    async def slow(self: SqliteStore, record: LogRecord) -> None:
        waits.set()
        await may_append.wait()
        await append(self, record)

    async def test(it: Api) -> None:
        second = await reshape(it)
        monkeypatch.setattr(SqliteStore, "append", slow)
        it.launcher.job(second).finish()
        await waits.wait()
        await asyncio.sleep(0.3)
        before = await scrape(it)
        may_append.set()
        await it.reaches("second", "completed")
        async with asyncio.timeout(10):
            while total(after := await scrape(it), "reshape_gpus", state="idle") < 2:
                await asyncio.sleep(0.02)
        shown = {key: value for key, value in before.items() if key[0].endswith("_total")}
        assert total(shown, "reshape_gpu_seconds_total", phase="trained") > 4 * 0.3
        assert {key: value for key, value in shown.items() if after.get(key, -1.0) < value} == {}

    run(tmp_path, test)


def test_the_counters_of_a_log_are_the_same_when_it_is_read_again(tmp_path: Path) -> None:
    async def live() -> str:
        async with api(tmp_path) as it:
            await reshape(it)
            await it.post("/v1/jobs/first/cancel")
            await it.reaches("first", "cancelled")
            return (await it.get("/metrics")).body.decode()

    async def again() -> LogFigures:
        store = SqliteStore(tmp_path / "store.sqlite")
        await store.open()
        try:
            found = await TimelineReader().totals(store, 30.0)
            assert found is not None
            assert found.seq == await store.last_seq()
            return found.figures
        finally:
            await store.close()

    before = samples(asyncio.run(live()))
    after = samples(generate_latest(asyncio.run(again()).registry).decode())
    assert total(after, "reshape_reshapes_total") == 1
    assert {key: value for key, value in after.items() if before.get(key) != value} == {}


def test_no_counter_of_the_log_is_shown_before_the_log_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reshape_controller.http.cluster.TOTALS_WAIT_S", 0.05)
    may_read = asyncio.Event()
    follow = TimelineReader._follow

    async def slow(self: TimelineReader, store: SqliteStore) -> None:
        await may_read.wait()
        await follow(self, store)

    monkeypatch.setattr(TimelineReader, "_follow", slow)

    async def test(it: Api) -> None:
        await it.post("/v1/jobs", RECORD)
        found = await scrape(it)
        assert total(found, "reshape_ready") == 1
        assert total(found, "reshape_figures_seq") == 0
        assert not [name for name, _ in found if name.startswith("reshape_jobs_submitted")]
        may_read.set()
        async with asyncio.timeout(10):
            while not total(found := await scrape(it), "reshape_figures_seq"):
                await asyncio.sleep(0.02)
        assert total(found, "reshape_jobs_submitted_total") == 1

    run(tmp_path, test)


@pytest.mark.parametrize("error", [StoreError("no disk; remedy: mount it"), ValueError("defect")])
def test_a_log_that_cannot_be_read_for_the_figures_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def broken(self: TimelineReader, store: SqliteStore) -> None:
        raise error

    follow = TimelineReader._follow

    async def test(it: Api) -> None:
        with capture_logs() as lines:
            for _ in range(2):
                for each in (broken, broken, follow):
                    monkeypatch.setattr(TimelineReader, "_follow", each)
                    assert (await it.get("/metrics")).code == 200
        found = [line for line in lines if line["event"] == "figures-not-read"]
        assert len(found) == 2, "once for each time that it begins"
        assert all(line["remedy"] for line in found)
        assert all(str(error) in str(line) or line.get("exc_info") for line in found)

    run(tmp_path, test)


def test_a_gpu_is_joined_with_its_job_for_readers_who_may_see_all_jobs(tmp_path: Path) -> None:
    roles = {"prom": Role.SCRAPER, "vera": Role.VIEWER, "ada": Role.USER}
    tokens = (NamedToken(name, role, digest(name.encode()), 1.0) for name, role in roles.items())
    file = TokenFile(tuple(tokens))
    identities = Identities(lambda: TOKEN, lambda: file, users_see_all=False)

    async def test(it: Api) -> None:
        await reshape(it)
        found = await scrape(it)
        infos = [dict(labels) for name, labels in found if name == "reshape_gpu_info"]
        assert sorted(info["UUID"] for info in infos) == [f"gpu-{n}" for n in range(4)]
        assert sorted(info["job_name"] for info in infos) == ["first"] * 2 + ["second"] * 2
        assert {info["user"] for info in infos if info["job_name"] == "first"} == {"ada"}
        for name in roles:
            text = (await it.ask("GET", "/metrics", token=name)).body.decode()
            assert ("reshape_gpu_info" in text) == (name != "ada"), name

    run(tmp_path, test, identities)


def test_requests_are_counted_by_the_template_of_their_path_and_method(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        await it.post("/v1/jobs", RECORD)
        await it.get("/v1/jobs/job")
        await it.post("/v1/jobs/job/pause")
        await it.get("/no/such/path")
        await it.ask("BREW", "/v1/jobs/job")
        found = await scrape(it)
        for route, method, status in (
            ("/v1/jobs", "POST", "201"),
            ("/v1/jobs/{key}", "GET", "200"),
            ("/v1/jobs/{key}/pause", "POST", "200"),
            ("none", "GET", "404"),
            ("/v1/jobs/{key}", "other", "405"),
        ):
            labels = {"route": route, "method": method, "status": status}
            assert total(found, "reshape_http_requests_total", **labels) == 1, labels
        assert not [labels for _, labels in found if ("route", "/no/such/path") in labels]

    run(tmp_path, test)


def test_reasons_beyond_the_bound_share_a_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "REASONS_MAX", 2)
    reasons = Reasons()
    assert [reasons.label(each) for each in ("a", "b", "c", "a")] == ["a", "b", "other", "a"]
