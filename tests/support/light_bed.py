"""A light daemon with jobs, for benchmarks: started, filled, and read from /proc."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.daemon_bed import DEADLINE_S, Bed, eventually
from tests.support.light_daemon import ENV_GPUS

PROGRAM = "tests.support.light_daemon"
PAGE = 1000
AT_ONCE = 20
"""Submissions under way at once."""


@dataclass(frozen=True, slots=True)
class Use:
    """What a process has used of its machine by a moment."""

    cpu_s: float
    rss_kib: int
    files: int
    threads: int


def use_of(pid: int) -> Use:
    """Return what a living process uses, from /proc."""
    text = Path(f"/proc/{pid}/status").read_text()
    status = dict(line.split(":", 1) for line in text.splitlines())
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    files = len(os.listdir(f"/proc/{pid}/fd"))
    return Use(cpu_s, int(status["VmRSS"].split()[0]), files, int(status["Threads"]))


class LightBed(Bed):
    """A home whose daemon has ``gpus`` simulated GPUs and starts no process."""

    def __init__(self, folder: Path, gpus: int) -> None:
        super().__init__(folder)
        self._gpus = gpus
        (self.code / "train.py").touch()

    def environment(self, **more: str) -> dict[str, str]:
        """As of every bed, with the number of GPUs."""
        return super().environment(**more) | {ENV_GPUS: str(self._gpus)}

    def start_daemon(self) -> None:
        """Start the daemon and wait for nothing."""
        self.launch(program=PROGRAM)

    def submit_many(self, count: int) -> None:
        """Submit jobs of one GPU that train for as long as they are let."""
        with ThreadPoolExecutor(AT_ONCE) as pool:  # so that jobs share an append
            list(pool.map(self._submit, (f"light-{number}" for number in range(count))))

    def _submit(self, name: str) -> None:
        """Submit a job. On a busy machine the store may be slow, and take the job all the same."""
        record: dict[str, object] = {
            "name": name,
            "command": ["python", "train.py"],
            "code": str(self.code),
            "framework": "keras",
            "optional_gpus": [1],
            "steps": 10**9,
        }
        eventually(lambda: self._is_submitted(record), text=f"{name} is submitted")

    def _is_submitted(self, record: dict[str, object]) -> bool:
        status, answer = self.post("/v1/jobs", record)
        if status == 201:
            return True
        assert status in (409, 503), answer
        return self._ask(f"/v1/jobs/{record['name']}")[0] == 200

    def all_jobs(self) -> list[Any]:
        """Return the jobs, as the API shows them."""
        status, page = self._ask(f"/v1/jobs?limit={PAGE}")
        assert status == 200, page
        found: list[Any] = page["jobs"]
        return found

    def status(self) -> Any:
        """Return the daemon's status; an empty value while nothing answers."""
        try:
            code, status = self._ask("/v1/status")
        except (OSError, ValueError):
            return {}
        return status if code == 200 else {}


async def until(what: str, holds: Callable[[], bool], every_s: float = 0.2) -> None:
    """Wait until something holds, asked in a thread; fails after DEADLINE_S."""
    give_up_s = asyncio.get_running_loop().time() + DEADLINE_S
    while not await asyncio.to_thread(holds):
        assert asyncio.get_running_loop().time() < give_up_s, f"did not happen: {what}"
        await asyncio.sleep(every_s)
