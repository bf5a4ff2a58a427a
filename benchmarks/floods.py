"""Do others get their answers while one identity, or a stranger, floods a daemon?

    python benchmarks/floods.py results.json [--seconds 60] [--only NAME ...]

A real daemon with 128 descriptors and 50 SideCars (SQLite, real sockets; its containers are lines
of a file). Each flood runs in a process of its own; a client that is refused comes again after
10 ms. Meanwhile another user asks 200 small things, each over a connection of its own and once, and
jobs of others are started. Results that ``results.json`` has are not measured again. Exit code 1 if
a bound is broken.

| Flood | What it does |
|---|---|
| strangers | without a token: 400 requests with unfinished bodies, again every 10 s |
| logins | the same at POST /v1/session, which needs no token |
| logs | one user waits 300 times for the log of an own job |
| polls | the SideCar of one job polls 300 times |
| trials | 5,000 queued jobs, and one user tries 60 records at once |
| lists | one user asks for 1,000 jobs, 40 times at once |
| overviews | one user asks for the overview, 40 times at once |
| events | one user asks for all old events, 40 times at once |
| records | one user submits records of 224 kB |
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from reshape_sidecar import codec  # noqa: E402
from tests.support import light_bed  # noqa: E402
from tests.support.light_bed import LightBed, until  # noqa: E402
from tests.support.light_daemon import lines  # noqa: E402
from tests.support.light_sidecars import LightSidecar, LightSidecars  # noqa: E402

FILES = 128
SIDECARS = 50
light_bed.AT_ONCE = 4  # one identity may have eight requests under way
QUEUED = 5_000
SMALL = 200
SMALL_S = 1.0
SHARE_MIN = 0.99
STARTS = 5
START_RATIO_MAX = 2.0
AGAIN_S = 0.01
SILENT_S = 10.0
"""A SideCar is reachable if it got an answer within so long."""


async def ask(
    port: int, method: str, path: str, token: str, body: bytes = b"", head: str = ""
) -> tuple[int, bytes]:
    """Send a request over a connection of its own; return status and what follows. Status 0: the
    connection was closed without an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        bearer = f"Authorization: Bearer {token}\r\n" if token else ""
        text = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{bearer}Connection: close\r\n{head}"
        writer.write(f"{text}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        answer = await reader.read()
        status = answer.split(b" ", 2)[1:2]
        return (int(status[0]) if status else 0), answer.partition(b"\r\n\r\n")[2]
    except OSError:
        return 0, b""
    finally:
        writer.close()


async def again_and_again(make: Callable[[], Awaitable[object]], at_once: int) -> None:
    """Keep so many of these under way, without end; one that is refused comes again at once, as a
    client does that tries to get more than its share."""

    async def one() -> None:
        while True:
            began_s = time.monotonic()
            with suppress(OSError):
                await make()
            await asyncio.sleep(max(0.0, AGAIN_S - (time.monotonic() - began_s)))

    await asyncio.gather(*[one() for _ in range(at_once)])


async def unfinished(port: int, path: str) -> None:
    """Open 400 connections with a body that does not come; again every 10 s."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n{{"
    opened: list[asyncio.StreamWriter] = []
    while True:
        for _ in range(400):
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(head.encode())
                opened.append(writer)
        await asyncio.sleep(10)
        for writer in opened:
            writer.close()
        opened.clear()


async def flood(name: str, port: int, token: str, job: str, worker: str) -> None:
    """Flood without end. ``job``: one of the user's; ``worker``: path and token of a SideCar."""
    record: dict[str, Any] = {"command": ["true"], "code": "/", "framework": "other"}
    if name in ("strangers", "logins"):
        await unfinished(port, "/v1/jobs" if name == "strangers" else "/v1/session")
    elif name == "logs":
        path = f"/v1/jobs/{job}/logs?wait_s=30&offset=0"
        await again_and_again(lambda: ask(port, "GET", path, token), 300)
    elif name == "polls":
        path, own, report = json.loads(worker)
        body = json.dumps(report).encode()
        await again_and_again(lambda: ask(port, "POST", f"{path}?wait_s=60", own, body), 300)
    elif name == "trials":
        tried = json.dumps(record | {"name": "tried", "optional_gpus": [40]}).encode()
        await again_and_again(lambda: ask(port, "POST", "/v1/trials", token, tried), 60)
    elif name in ALL_JOBS:
        await again_and_again(lambda: ask(port, "GET", ALL_JOBS[name], token), 40)
    elif name == "records":
        numbers = iter(range(10**9))

        async def submit() -> None:
            env = {f"TEXT{part}": "x" * 4000 for part in range(55)}
            own = record | {"name": f"big-{next(numbers)}", "optional_gpus": [40], "env": env}
            await ask(port, "POST", "/v1/jobs", token, json.dumps(own).encode())

        await again_and_again(submit, 10)


ALL_JOBS = {
    "lists": "/v1/jobs?limit=1000",
    "overviews": "/v1/overview",
    "events": "/v1/events?after=0&wait_s=0",
}
"""Floods with answers about all jobs, and what they ask for."""
FLOODS = ("strangers", "logins", "logs", "polls", *ALL_JOBS, "records", "trials")


async def small_requests(port: int, token: str, seconds: float) -> list[float | None]:
    """Return how long each small request took; None: no answer, or another one than 200."""
    took: list[float | None] = []
    for _ in range(SMALL):
        began_s = time.monotonic()
        status = 0
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(10):
                status, _ = await ask(port, "GET", "/v1/jobs?limit=1", token)
        took.append(time.monotonic() - began_s if status == 200 else None)
        await asyncio.sleep(max(0.0, seconds / SMALL - (time.monotonic() - began_s)))
    return took


async def start_s(port: int, token: str, name: str) -> float:
    """Submit a job of one GPU; return the time until it trains."""
    began_s = time.monotonic()
    record = {"name": name, "command": ["true"], "code": "/", "framework": "other"}
    body = json.dumps(record | {"optional_gpus": [1]}).encode()
    await until_answered(port, "POST", "/v1/jobs", token, body)
    async with asyncio.timeout(120):
        while True:
            found = json.loads(await until_answered(port, "GET", f"/v1/jobs/{name}", token))
            if found["stage"] == "training":
                return time.monotonic() - began_s
            await asyncio.sleep(0.05)


async def until_answered(port: int, method: str, path: str, token: str, body: bytes = b"") -> bytes:
    """Ask until there is an answer."""
    while True:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(10):
                status, answer = await ask(port, method, path, token, body)
            if status in (200, 201):
                return answer
            if status not in (0, 404, 429, 503):
                raise RuntimeError(f"{method} {path}: {status} {answer[:300]!r}")
        await asyncio.sleep(0.05)


async def measured(bed: FloodBed, sidecars: LightSidecars, name: str, seconds: float) -> Any:
    """Measure one flood."""
    port = int(json.loads((bed.home / "address.json").read_text())["url"].rpartition(":")[2])
    operator = (bed.home / "token").read_text().strip()
    tokens = json.loads((bed.folder / "tokens").read_text())
    usual = [await start_s(port, operator, f"usual-{n}") for n in range(STARTS)]
    victim = next(line for line in lines(bed.home / "jobs") if line.job.startswith("light-2-"))
    sidecar = sidecars.of[victim.job]
    report = json.loads(codec.dumps(sidecar._observe()))
    worker = json.dumps((f"/v1/sidecar/{victim.job}/{victim.attempt}", victim.token, report))
    greedy = tokens["greedy"]
    words = [sys.executable, __file__, "-", "--flood", name, str(port), greedy, bed.own, worker]
    flooding = await asyncio.create_subprocess_exec(*words)
    try:
        await asyncio.sleep(2)
        sidecars.clear()
        asking = asyncio.create_task(small_requests(port, tokens["other"], seconds))
        flooded = [await start_s(port, operator, f"flooded-{n}") for n in range(STARTS)]
        took = await asking
        others = {job: each for job, each in sidecars.of.items() if job != victim.job}
        reached = await reachable(others)
    finally:
        flooding.kill()
        await flooding.wait()
    in_time = sum(each is not None and each <= SMALL_S for each in took)
    known = sorted(each for each in took if each is not None)
    usual_s, flooded_s = sorted(usual)[len(usual) // 2], sorted(flooded)[len(flooded) // 2]
    return {
        "small requests": len(took),
        "answered in time": in_time,
        "median_s": round(known[len(known) // 2], 4) if known else None,
        "longest_s": round(known[-1], 3) if known else None,
        "start, usual_s": round(usual_s, 2),
        "start, flooded_s": round(flooded_s, 2),
        "sidecars of others": len(others),
        "sidecars reached": reached,
        "load": [round(load, 1) for load in os.getloadavg()],
        "holds": in_time >= SHARE_MIN * len(took)
        and flooded_s / max(0.5, usual_s) <= START_RATIO_MAX
        and reached == len(others),
    }


async def reachable(sidecars: dict[str, LightSidecar]) -> int:
    """Return how many of these SideCars, by job, get an answer within SILENT_S from now."""
    before = {job: each._link.sequence_acknowledged for job, each in sidecars.items()}
    await asyncio.sleep(SILENT_S)
    return sum(each._link.sequence_acknowledged > before[job] for job, each in sidecars.items())


async def run(results: Path, seconds: float, only: list[str]) -> int:
    """Measure what has no result yet; print all, and return the exit code."""
    known = json.loads(results.read_text()) if results.exists() else {}
    for name in [each for each in FLOODS if each in (only or FLOODS) and each not in known]:
        with tempfile.TemporaryDirectory() as folder:
            bed = FloodBed(Path(folder))
            playing = None
            try:
                bed.start_daemon()
                bed.wait_until_it_answers()
                sidecars = LightSidecars(bed.home / "jobs", 2.0)
                playing = asyncio.create_task(sidecars.run())
                await asyncio.to_thread(bed.submit_many, SIDECARS)
                await until("all train", bed.all_train)
                await asyncio.to_thread(bed.people, QUEUED if name in ("trials", *ALL_JOBS) else 1)
                known[name] = await measured(bed, sidecars, name, seconds)
            finally:
                if playing is not None:
                    playing.cancel()
                    await asyncio.gather(playing, return_exceptions=True)
                await asyncio.to_thread(bed.close)
        results.write_text(json.dumps(known, indent=1) + "\n")
        print(name, json.dumps(known[name]), flush=True)
    return int(not all(each["holds"] for each in known.values()))


class FloodBed(LightBed):
    """A light daemon with few descriptors, and two users."""

    prefix = ("prlimit", f"--nofile={FILES}:{FILES}")
    own = ""
    """A job of the greedy user."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, SIDECARS + 2 * STARTS)

    def all_train(self) -> bool:
        """Whether every job trains."""
        return all(job["stage"] == "training" for job in self.all_jobs())

    def people(self, jobs: int) -> None:
        """Create the users, and queue jobs of the greedy one."""
        tokens = {}
        for name in ("greedy", "other"):
            made = self.reshape("token", "create", name, "--uid", "1234")
            assert made.returncode == 0, made.stderr
            tokens[name] = made.stdout.strip()
        (self.folder / "tokens").write_text(json.dumps(tokens))
        port = int(json.loads((self.home / "address.json").read_text())["url"].rpartition(":")[2])
        for part in range(max(1, jobs // 500)):
            record = {
                "name": f"queued-{part}",
                "command": ["true"],
                "code": "/",
                "framework": "other",
                "optional_gpus": [40],  # none of them starts
                "array": {"SEED": list(range(min(jobs, 500)))},
            }
            body = json.dumps(record).encode()
            status, answer = asyncio.run(ask(port, "POST", "/v1/arrays", tokens["greedy"], body))
            assert status == 201, answer
            self.own = json.loads(answer)["jobs"][0]


def main() -> int:
    """Measure, or flood."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", nargs="*", default=[], choices=FLOODS)
    parser.add_argument("--flood", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.flood:
        name, port, token, job, worker = options.flood
        asyncio.run(flood(name, int(port), token, job, worker))
        return 0
    return asyncio.run(run(options.results, options.seconds, options.only))


if __name__ == "__main__":
    sys.exit(main())
