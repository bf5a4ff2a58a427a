"""The paper's Tables II and III as a plain client reads them, and who writes the use of GPUs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reshape_controller.core.model import GpuId, JobId, JobState
from reshape_controller.live.audit import audit
from reshape_controller.store.mongo.store import MongoStore
from reshape_controller.store.protocol import Changes, GpuUseRow
from tests.support.daemon_bed import Bed, bed, eventually
from tests.support.mongo_bed import Database, run
from tests.support.store_values import changes, job_row

pytestmark = pytest.mark.mongo
JOB = JobId("job-001")
USE = ("used_bytes", "utilization_ratio", "seen_at_s")


@pytest.fixture(name="bed")
def _bed(tmp_path: Path) -> Iterator[Bed]:
    yield from bed(tmp_path)


def use(used_bytes: int, job: JobId = JOB) -> GpuUseRow:
    return GpuUseRow(GpuId("gpu-0"), job, used_bytes, 0.5, 7.0)


def shown(user: Database) -> list[Any]:
    """The use that a client finds in the document of the GPU."""
    found = user.gpus.find_one({"_id": "gpu-0"})
    assert found is not None
    return [found.get(name) for name in USE]


def test_a_job_shows_its_use_until_it_leaves_the_gpu(address: str, user: Database) -> None:
    async def work(store: MongoStore) -> None:
        await store.project(changes(1, job_row(1, 1, state=JobState.RUNNING)))
        await store.show_gpu_use((use(10),), 1)
        assert shown(user) == [10, 0.5, 7.0]
        await store.project(changes(2, job_row(1, 2, state=JobState.RUNNING)))
        assert shown(user) == [10, 0.5, 7.0], "an append about the GPU keeps its use"
        await store.show_gpu_use((use(20, JobId("job-002")),), 1)
        assert shown(user) == [10, 0.5, 7.0], "the GPU is not that job's"
        await store.project(changes(3))
        assert shown(user) == [None, None, None]
        await store.show_gpu_use((use(30),), 1)
        assert shown(user) == [None, None, None], "the job has left"

    run(address, work)


def test_the_use_of_a_controller_that_was_taken_over_is_not_written(
    address: str, user: Database
) -> None:
    async def work(store: MongoStore) -> None:
        await store.project(changes(1, job_row(1, 1, state=JobState.RUNNING)))
        await store.show_gpu_use((use(10),), 2)
        await store.show_gpu_use((use(20),), 1)
        assert shown(user)[0] == 10
        await store.show_gpu_use((use(30),), 2)
        await store.show_gpu_use((use(40),), 3)
        assert shown(user)[0] == 40

    run(address, work)


def test_a_check_does_not_undo_the_use(address: str, user: Database) -> None:
    async def work(store: MongoStore) -> None:
        wanted = changes(1, job_row(1, 1, state=JobState.RUNNING))
        await store.project(wanted)
        await store.show_gpu_use((use(10),), 1)
        gpus = (Changes(1, 1.0, gpus=wanted.gpus, workers=wanted.workers),)
        assert await store.differing(gpus, 1) == ()
        await store.rewrite(gpus, 1)
        assert shown(user) == [10, 0.5, 7.0]

    run(address, work)


def test_a_plain_client_reads_the_papers_tables(bed: Bed, user: Database, address: str) -> None:
    bed.up("--store", address)
    record = json.loads(bed.record("big", steps=100_000, optional_gpus=[2]).read_text())
    mine = user.jobs.insert_one(record | {"code": str(bed.code), "job_type": "resnet"}).inserted_id
    eventually(lambda: user.jobs.find_one({"_id": mine, "number_of_gpus": 2, "state": "running"}))
    (job,) = user.jobs.find({"reshape.order": {"$gt": ""}})
    columns = (job["state"], job["number_of_gpus"], job["job_type"], job["optional_gpus"])
    assert columns == ("running", 2, "resnet", [2])
    gpus = list(user.gpus.find({"seq": {"$gt": 0}}).sort("number", 1))
    identity = job["reshape"]["id"]
    table = [(gpu["state"], gpu["job_id"], gpu["worker"]) for gpu in gpus]
    assert sorted(table, key=str) == sorted(
        [("in use", identity, 0)] * 2 + [("idle", None, None)] * 2, key=str
    )
    assert {gpu["_id"] for gpu in gpus if gpu["worker"] == 0} == set(job["gpu_ids"])
    assert bed.reshape("cancel", "big").returncode == 0
    eventually(lambda: user.gpus.count_documents({"worker": None}) == 4)

    async def look(store: MongoStore) -> None:
        assert (await audit(store, repair=False)).sound

    run(address, look)
