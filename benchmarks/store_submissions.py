"""How fast a controller takes jobs in, decides about what was inserted, and starts.

    python benchmarks/store_submissions.py [--store mongodb://HOST:PORT] [--only PART]

Prints one JSON document with the conditions. ``submit``: jobs that are each accepted and readable,
by several clients at once (appends are shared). ``insert``: from a plain insert to the record of
the decision about it. ``poll``: one look into the inbox beside ``--jobs`` stored jobs. ``start``:
from opening a store with many ended jobs to the first decision.
Without ``--store`` the store is SQLite. Nothing is launched: effects have no effect.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import resource
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog
from pymongo import AsyncMongoClient

from reshape_controller.access.identities import Identities
from reshape_controller.core import events as ev
from reshape_controller.core.commands import Command
from reshape_controller.core.engine import Engine
from reshape_controller.core.model import GpuId, HostId, JobId, JobSpec
from reshape_controller.live import inbox
from reshape_controller.live.admission import Admission
from reshape_controller.live.clock import WallClock
from reshape_controller.live.control import Control
from reshape_controller.live.loop import Loop, Settings
from reshape_controller.policies import make_policy
from reshape_controller.store.mongo.store import MongoStore
from reshape_controller.store.protocol import InboxItem, Store
from reshape_controller.store.sqlite.store import SqliteStore

POLLS = 100
SPEC = JobSpec("job", ("python", "train.py", "--epochs", "{epochs}"), (1, 2, 4), code="/data/code")


Insert = Callable[[dict[str, Any]], Awaitable[None]]


class NoEffects:
    def carry_out(self, engine: Engine, commands: tuple[Command, ...]) -> None:
        return None


class Running:
    """A controller's loop on an open store, without a launcher."""

    def __init__(self, store: Store) -> None:
        self.loop = Loop(store, Settings(make_policy("adaptive")), WallClock())
        self.task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Loop:
        await self.loop.start(NoEffects())
        self.task = asyncio.create_task(self.loop.run())
        return self.loop

    async def __aexit__(self, *_: object) -> None:
        self.loop.stop()
        assert self.task is not None
        await self.task


def figures(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "p50_ms": round(1000 * statistics.median(ordered), 2),
        "p99_ms": round(1000 * ordered[int(0.99 * (len(ordered) - 1))], 2),
        "max_ms": round(1000 * ordered[-1], 2),
    }


def host() -> ev.HostAdded:
    return ev.HostAdded(HostId("host"), "V100", tuple(GpuId(f"gpu-{n}") for n in range(8)))


async def submit(store: Store, jobs: int, clients: int) -> dict[str, object]:
    """Accepted jobs a second. Each is cancelled again, so that the queue stays short."""
    seconds: list[float] = []
    async with Running(store) as loop:
        numbers = iter(range(jobs))

        async def client() -> None:
            for number in numbers:
                job = JobId(f"job-{number:08}")
                spec = replace(SPEC, name=job)
                begin = time.perf_counter()
                await loop.commit(ev.JobSubmitted(job, spec))
                seconds.append(time.perf_counter() - begin)
                loop.post(ev.CancelRequested(job))

        begin = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(clients)))
        total_s = time.perf_counter() - begin
        appends = await store.last_seq()
    return {
        "jobs": jobs,
        "clients": clients,
        "per_s": round(jobs / total_s, 1),
        "appends": appends,
        **figures(seconds),
    }


@contextlib.asynccontextmanager
async def by_hand(store: Store, server: str | None) -> AsyncIterator[Insert]:
    """Insert a record as a user does: into ``jobs`` of a server, by a client of its own."""
    if server is None:

        async def put(body: dict[str, Any]) -> None:
            await store.put_request(InboxItem(secrets.token_hex(8), "submit", json.dumps(body)))

        yield put
        return
    async with AsyncMongoClient[dict[str, Any]](server) as client:
        collection = client.get_default_database().jobs

        async def insert_one(body: dict[str, Any]) -> None:
            await collection.insert_one(body)

        yield insert_one


async def insert(store: Store, put: Insert, jobs: int) -> dict[str, object]:
    """From a plain insert to the decision about it, at random moments of the poll."""
    seconds: list[float] = []
    async with Running(store) as loop:
        await loop.commit(host())
        admission = Admission(lambda: loop.engine.state)
        control = Control(loop, admission, lambda job: None, lambda job: None, lambda job: "")
        identities = Identities(lambda: secrets.token_hex(16))
        watch = asyncio.create_task(inbox.watch(loop, admission, control, identities))
        for number in range(jobs):
            body = {"name": f"one-{number}", "command": ["a"], "optional_gpus": [1], "code": "/"}
            begin = time.perf_counter()
            await put(body)
            job = None
            while job is None:
                live = loop.engine.state.jobs.values()
                job = next((j.id for j in live if j.spec.name == body["name"]), None)
                await asyncio.sleep(0.001)
            while not await store.decisions(job):
                await asyncio.sleep(0.001)
            seconds.append(time.perf_counter() - begin)
            await loop.commit(ev.CancelRequested(job))
            await asyncio.sleep((number * 0.618) % 1.0)
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
    return {"jobs": jobs, "poll_s": inbox.POLL_S, **figures(seconds)}


async def fill(store: Store, jobs: int, per_append: int, queued: int) -> None:
    """A store with a past: so many jobs that came and went, and some that wait."""
    async with Running(store) as loop:
        for first in range(0, queued, per_append):
            names = [JobId(f"queued-{n:08}") for n in range(first, min(first + per_append, queued))]
            waits = [loop.commit(ev.JobSubmitted(n, replace(SPEC, name=n))) for n in names]
            await asyncio.gather(*waits)
        for first in range(0, jobs - queued, per_append):
            last = min(first + per_append, jobs - queued)
            names = [JobId(f"past-{n:08}") for n in range(first, last)]
            waits = [loop.commit(ev.JobSubmitted(n, replace(SPEC, name=n))) for n in names]
            waits += [loop.commit(ev.CancelRequested(n)) for n in names]
            await asyncio.gather(*waits)


async def poll(store: Store, jobs: int, per_append: int) -> dict[str, object]:
    """A look into the inbox, empty and with one request in it, beside many jobs."""
    await fill(store, jobs, per_append, 0)
    found: dict[str, object] = {"jobs_stored": (await store.jobs(limit=1)).total}
    for label in ("empty", "one_request"):
        seconds = []
        for _ in range(POLLS):
            begin = time.perf_counter()
            await store.requests(inbox.REQUESTS_MAX)
            seconds.append(time.perf_counter() - begin)
        found[label] = figures(seconds)
        await store.put_request(InboxItem("one", "submit", "{}"))
    return found


def memory_mb() -> float:
    with open("/proc/self/statm") as file:
        return round(int(file.read().split()[1]) * resource.getpagesize() / 2**20, 1)


async def start(store: Store) -> dict[str, object]:
    """Open to first decision, and the memory that this took."""
    before_mb, begin = memory_mb(), time.perf_counter()
    await store.open()
    opened = time.perf_counter()
    async with Running(store) as loop:
        recovered = time.perf_counter()
        await loop.commit(host())
        await loop.commit(ev.JobSubmitted(JobId("first"), replace(SPEC, name="first")))
        decided = time.perf_counter()
        assert await store.decisions(None, limit=1)
    total = (await store.jobs(limit=1)).total
    appends = await store.last_seq()
    await store.close()
    return {
        "appends": appends,
        "jobs_stored": total,
        "open_s": round(opened - begin, 3),
        "recover_s": round(recovered - opened, 3),
        "decide_s": round(decided - recovered, 3),
        "total_s": round(decided - begin, 3),
        "memory_before_mb": before_mb,
        "memory_after_mb": memory_mb(),
    }


def conditions(store: str) -> dict[str, object]:
    return {
        "store": store,
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "load_1_min": round(os.getloadavg()[0], 2),
    }


def main() -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--store", help="a server; its databases benchmark_* are written")
    parser.add_argument("--only", choices=("submit", "insert", "poll", "start"))
    parser.add_argument("--submissions", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--inserts", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=100_000, help="jobs before the start")
    parser.add_argument("--queued", type=int, default=0, help="of these, jobs that still wait")
    parser.add_argument("--per-append", type=int, default=100, help="jobs of an append")
    parser.add_argument("--folder", type=Path, help="where the disk is that shall be measured")
    asked = parser.parse_args()
    own = secrets.token_hex(4)
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:

        def server(part: str) -> str | None:
            return f"{asked.store.rstrip('/')}/benchmark_{part}_{own}" if asked.store else None

        def make(part: str) -> Store:
            address = server(part)
            if address is not None:
                return MongoStore(address)
            return SqliteStore(Path(name) / part / "store.sqlite")

        async def run(part: str) -> dict[str, object]:
            store = make(part)
            await store.open()
            try:
                if part == "submit":
                    return await submit(store, asked.submissions, asked.clients)
                if part == "insert":
                    async with by_hand(store, server(part)) as put:
                        return await insert(store, put, asked.inserts)
                if part == "poll":
                    return await poll(store, asked.jobs, asked.per_append)
                await fill(store, asked.jobs, asked.per_append, asked.queued)
            finally:
                await store.close()
            return {}

        found: dict[str, object] = {"conditions": conditions(asked.store or "SQLite, WAL, FULL")}
        for part in ("submit", "insert", "poll", "start"):
            if asked.only in (None, part):
                found[part] = asyncio.run(run(part))
        if asked.only in (None, "start"):
            # In a process of its own: what filling took is not what a start takes.
            pid = os.fork()
            if pid == 0:
                print(json.dumps(found | {"start": asyncio.run(start(make("start")))}, indent=2))
                sys.stdout.flush()
                os._exit(0)
            os.waitpid(pid, 0)
        else:
            print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
