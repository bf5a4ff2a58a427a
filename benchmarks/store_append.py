"""How fast a store commits, and how fast the SQLite store starts from a long log.

    python benchmarks/store_append.py [--appends N] [--records N] [--jobs N] [--folder DIR]
    python benchmarks/store_append.py --only-appends [--appends N] [--folder DIR]
    python benchmarks/store_append.py --store mongodb://HOST:PORT [--appends N]

Prints one JSON document with the conditions. An append is one durable commit of a batch as small
as they come (one event); the loop puts up to 500 events into one. ``floor`` is a plain write and
fdatasync of the same bytes to the same folder: what the disk allows anybody. With ``--store`` the
appends and projections alone are measured, on that server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import secrets
import sqlite3
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from reshape_controller.core.events import JobSubmitted
from reshape_controller.core.model import Job, JobId, JobSpec
from reshape_controller.core.record import HistoryEntry, LogRecord
from reshape_controller.live.marks import LogMarks
from reshape_controller.store.digest import GENESIS, body_of, seal
from reshape_controller.store.mongo.store import MongoStore
from reshape_controller.store.protocol import Changes, JobRow, Store
from reshape_controller.store.sqlite import file as sqlite_file
from reshape_controller.store.sqlite.store import SqliteStore

MARK_BLOCK = 20
"""Appends in a row without or with the mark."""
SPEC = JobSpec(
    "resnet", ("python", "train.py", "--epochs", "{epochs}"), (1, 2, 4), code="/data/code"
)


def made(seq: int, previous: str) -> LogRecord:
    event = JobSubmitted(JobId(f"job-{seq:08}"), replace(SPEC, name=f"resnet-{seq}"))
    return seal(previous, LogRecord(seq, 1, "benchmark", "paper", float(seq), (event,), (), (), ""))


def shown(record: LogRecord) -> Changes:
    (event,) = record.events
    assert isinstance(event, JobSubmitted)
    job = Job(event.job, event.spec, record.seq, record.at_s)
    row = JobRow(job.id, job.spec.name, "ada", job.state, record.seq, record.at_s, job)
    entry = HistoryEntry(job.id, record.at_s, "submitted", "by ada")
    return Changes(record.seq, record.at_s, (row,), (), (), (entry,))


def figures(seconds: list[float]) -> dict[str, float]:
    """Rate and latencies of operations that ran one after the other."""
    ordered = sorted(seconds)
    return {
        "per_s": round(len(ordered) / sum(ordered), 1),
        "p50_ms": round(1000 * statistics.median(ordered), 3),
        "p99_ms": round(1000 * ordered[int(0.99 * (len(ordered) - 1))], 3),
        "max_ms": round(1000 * ordered[-1], 3),
    }


def floor(folder: Path, appends: int) -> dict[str, float]:
    """Plain durable writes of the same size."""
    body = body_of(made(1, GENESIS))
    seconds = []
    with open(folder / "floor", "wb", buffering=0) as file:
        for _ in range(appends):
            begin = time.perf_counter()
            file.write(body)
            os.fdatasync(file.fileno())
            seconds.append(time.perf_counter() - begin)
    return figures(seconds)


async def marked(store: Store, appends: int, mark: Path) -> dict[str, object]:
    """Appends in turn without and with the mark that a daemon writes after each, in one run."""
    await store.open()
    marks, digest = LogMarks(mark), GENESIS
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for seq in range(1, 2 * appends + 1):
        record = made(seq, digest)
        digest = record.digest
        with_mark = seq // MARK_BLOCK % 2 == 1
        begin = time.perf_counter()
        await store.append(record)
        if with_mark:
            marks.note(record)
        seconds[with_mark].append(time.perf_counter() - begin)
    await store.close()
    marks.close()
    without, marked = figures(seconds[False]), figures(seconds[True])
    ratio = round(marked["p99_ms"] / without["p99_ms"], 3)
    return {"without": without, "with": marked, "p99_ratio": ratio}


async def append(store: Store, appends: int) -> dict[str, dict[str, float]]:
    """Appends alone, and what one submission costs: append, then projection."""
    await store.open()
    only, projections, both, digest = [], [], [], GENESIS
    for seq in range(1, 2 * appends + 1):
        record = made(seq, digest)
        digest = record.digest
        begin = time.perf_counter()
        await store.append(record)
        middle = time.perf_counter()
        if seq <= appends:
            only.append(middle - begin)
            continue
        await store.project(shown(record))
        end = time.perf_counter()
        projections.append(end - middle)
        both.append(end - begin)
    await store.close()
    return {
        "append": figures(only),
        "project": figures(projections),
        "append_then_project": figures(both),
    }


def fill(path: Path, records: int, jobs: int, snapshot: int) -> None:
    """A store with a long log, written in bulk: only its reading is measured."""

    def rows(connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN")
        digest = GENESIS
        for seq in range(1, records + 1):
            record = made(seq, digest)
            digest = record.digest
            connection.execute(
                "INSERT INTO log VALUES (?, ?, ?)", (seq, digest, body_of(record).decode())
            )
        connection.execute("COMMIT")

    path.parent.mkdir(mode=0o700, parents=True)
    sqlite_file.create(path, rows)

    async def rest() -> None:
        store = SqliteStore(path)
        await store.open()
        # Many jobs in one change, as a repair at the start would write them.
        for first in range(1, jobs + 1, 1000):
            single = [shown(made(n, GENESIS)) for n in range(first, min(first + 1000, jobs + 1))]
            every = tuple(row for each in single for row in each.jobs)
            entries = tuple(entry for each in single for entry in each.history)
            await store.project(Changes(first, float(first), every, (), (), entries))
        if snapshot:
            part = "x" * 1_000_000
            await store.write_snapshot(snapshot, (part,) * max(1, jobs * 500 // 1_000_000))
        await store.close()

    asyncio.run(rest())


async def start(path: Path) -> dict[str, float]:
    """Time what a controller reads before it can decide: open, snapshot, records after it."""
    begin = time.perf_counter()
    store = SqliteStore(path)
    await store.open()
    opened = time.perf_counter()
    snapshot = await store.latest_snapshot()
    count = 0
    async for _ in store.read(snapshot[0] if snapshot else 0):
        count += 1
    read = time.perf_counter()
    page = await store.jobs(limit=100)
    paged = time.perf_counter()
    await store.close()
    return {
        "open_s": round(opened - begin, 3),
        "snapshot_and_log_s": round(read - opened, 3),
        "total_s": round(read - begin, 3),
        "records_decoded": count,
        "file_mb": round(path.stat().st_size / 1e6, 1),
        "jobs_stored": page.total,
        "first_page_of_jobs_ms": round(1000 * (paged - read), 2),
    }


def machine() -> dict[str, object]:
    return {
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "load_1_min": round(os.getloadavg()[0], 2),
        "record_bytes": len(body_of(made(1, GENESIS))),
    }


def conditions(folder: Path) -> dict[str, object]:
    mounts = Path("/proc/self/mounts").read_text()
    from reshape_controller.store.sqlite.lock import filesystem_of

    return {
        **machine(),
        "sqlite": sqlite3.sqlite_version,
        "file_system": filesystem_of(folder.resolve(), mounts),
        "journal": "wal, synchronous=FULL",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--store", help="a server; a database benchmark_append_* is written")
    parser.add_argument("--appends", type=int, default=2000)
    parser.add_argument("--records", type=int, default=100_000, help="length of the long log")
    parser.add_argument("--jobs", type=int, default=100_000, help="jobs stored beside it")
    parser.add_argument("--tail", type=int, default=1000, help="records after the snapshot")
    parser.add_argument("--only-appends", action="store_true", help="measure no start")
    parser.add_argument("--folder", type=Path, help="where the disk is that shall be measured")
    asked = parser.parse_args()
    if asked.store:
        server = f"{asked.store.rstrip('/')}/benchmark_append_{secrets.token_hex(4)}"
        said: dict[str, object] = {"conditions": {**machine(), "store": asked.store}}
        said.update(asyncio.run(append(MongoStore(server), asked.appends)))
        print(json.dumps(said, indent=2))
        return
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        folder = Path(name)
        found: dict[str, object] = {"conditions": conditions(folder)}
        found["floor"] = floor(folder, asked.appends)
        found.update(asyncio.run(append(SqliteStore(folder / "append.db"), asked.appends)))
        found["mark"] = asyncio.run(
            marked(SqliteStore(folder / "marked.db"), asked.appends, folder / "marked.db.mark")
        )
        if asked.only_appends:
            print(json.dumps(found, indent=2))
            return
        for label, snapshot in (("without", 0), ("with", asked.records - asked.tail)):
            path = folder / label / "start.db"
            fill(path, asked.records, asked.jobs, snapshot)
            found[f"start_{label}_snapshot"] = asyncio.run(start(path))
        peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found["peak_memory_mb"] = round(peak_kb / 1024, 1)
        json.dump(found, sys.stdout, indent=2)
        print()


if __name__ == "__main__":
    main()
