"""Ten thousand jobs: every list comes in pages, and a page comes fast."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.commands import Command
from reshape_controller.core.engine import Engine
from reshape_controller.core.model import JobId, Mechanism
from reshape_controller.live.clock import WallClock
from reshape_controller.live.loop import Loop, Settings
from reshape_controller.policies import make_policy
from reshape_controller.records import parse_record
from reshape_controller.store.sqlite.store import SqliteStore
from tests.support.daemon_bed import Bed
from tests.support.daemon_bed import bed as make_bed

pytestmark = pytest.mark.timeout(600)

JOBS = 10_000
PAGE_S = 0.3
TRIES = 20
"""Another program may take the machine for a moment: the fastest of so many tries counts."""


class NoEffects:
    """There is no host, so there is nothing to carry out."""

    def carry_out(self, engine: Engine, commands: tuple[Command, ...]) -> None:
        assert commands == ()


async def fill(home: Path) -> None:
    """Halted jobs: they have not ended, so that no list may leave them out."""
    home.mkdir(mode=0o700)
    store = SqliteStore(home / "store.sqlite")
    await store.open()
    loop = Loop(store, Settings(make_policy("adaptive"), Mechanism.SIDECAR), WallClock())
    await loop.start(NoEffects())
    task = asyncio.create_task(loop.run())
    spec = parse_record({"name": "job", "command": "true", "optional_gpus": [1, 2]})
    names = [f"job-{number:05d}" for number in range(JOBS)]
    submitted = (ev.JobSubmitted(JobId(name), replace(spec, name=name)) for name in names)
    await asyncio.gather(*map(loop.commit, submitted))
    await asyncio.gather(*(loop.commit(ev.HaltRequested(JobId(n), "ada")) for n in names))
    loop.stop()
    await task
    await store.close()


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    for made in make_bed(tmp_path_factory.mktemp("many")):
        asyncio.run(fill(made.home))
        made.up()
        yield made


def fastest_s(bed: Bed, path: str) -> float:
    url = json.loads((bed.home / "address.json").read_text())["url"]
    token = (bed.home / "token").read_text().strip()
    request = urllib.request.Request(url + path, headers={"Authorization": f"Bearer {token}"})
    best_s = float("inf")
    for _ in range(TRIES):
        begin_s = time.monotonic()
        with urllib.request.urlopen(request) as answer:
            answer.read()
        best_s = min(best_s, time.monotonic() - begin_s)
    return best_s


@pytest.mark.parametrize(
    "path",
    [
        "/v1/jobs?limit=200",
        "/v1/jobs?limit=200&after=job-05000",
        "/v1/jobs?limit=200&state=running",
        "/v1/jobs/job-09999",
        "/v1/gpus",
    ],
)
def test_a_page_of_ten_thousand_jobs_is_there_in_time(bed: Bed, path: str) -> None:
    assert fastest_s(bed, path) < PAGE_S


def test_get_shows_a_page_and_names_the_command_for_the_next(bed: Bed) -> None:
    first = bed.reshape("get")
    lines = first.stdout.splitlines()
    assert first.returncode == 0
    assert len(lines) == 1 + 200
    assert lines[1].startswith("job-00000")
    assert "200 of 10000 jobs are shown; the next: reshape get --after job-00199" in first.stderr
    second = bed.reshape("get", "--after", "job-00199").stdout.splitlines()
    assert second[1].startswith("job-00200")
    last = bed.reshape("get", "--after", "job-09900")
    assert len(last.stdout.splitlines()) == 1 + 99
    assert "no further jobs that have not ended; 10000 jobs in all" in last.stderr


def test_the_page_as_json_says_where_the_next_one_begins(bed: Bed) -> None:
    page = bed.json("get")
    assert (len(page["jobs"]), page["total"], page["next_after"]) == (200, JOBS, "job-00199")


def test_all_of_them_can_be_had(bed: Bed) -> None:
    page = bed.json("get", "--all")
    assert [job["id"] for job in page["jobs"]] == [f"job-{n:05d}" for n in range(JOBS)]
    assert page["next_after"] is None
