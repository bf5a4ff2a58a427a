"""Work on a MongoDB store for tests, and rows as the daemon would show them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pymongo

from reshape_controller.core.model import JobId, JobState
from reshape_controller.store.mongo.store import MongoStore
from reshape_controller.store.protocol import JobRow
from tests.support import store_bed
from tests.support.store_values import job_row

Database = pymongo.database.Database[dict[str, Any]]


def run(address: str, work: Callable[[MongoStore], Awaitable[None]]) -> None:
    """Open the store, do the work, close it."""
    store_bed.run(lambda: MongoStore(address), work)


def row_of(job: str, state: JobState, seq: int, name: str = "resnet") -> JobRow:
    """What is shown of the job with this id."""
    row = job_row(1, seq, state=state, name=name)
    if row.job is None:
        return replace(row, id=JobId(job))
    return replace(row, id=JobId(job), job=replace(row.job, id=JobId(job)))
