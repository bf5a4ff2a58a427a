"""How long a SideCar takes to be initialised, and how much memory its two processes hold.

    python benchmarks/sidecar_start.py [--runs 10]

Measures launch() of the local launcher until the coordinator holds the report ``initialized`` (init
start, agent start, self-check, first request), and RSS and PSS of init and agent while the job
waits without GPUs. Each run is a new attempt in an empty folder, one after another. Never: starts a
training process; simulated devices, so NVML is not loaded.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import re
import statistics
import tempfile
import time
from pathlib import Path

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from reshape_launcher.local import processes
from reshape_launcher.local.launcher import LocalLauncher
from reshape_launcher.spec import DeviceMode, LaunchSpec
from reshape_sidecar import codec
from reshape_sidecar.init.look import init_of
from reshape_sidecar.init.processes import Marker
from reshape_sidecar.wire import Desired, Mode, Observed, Phase, Shortcut

WAIT_S = 60.0


class Reports(RequestHandler):
    """Answers each report with the same desired state, held back as the real link does."""

    initialized: asyncio.Queue[float]

    def initialize(self, initialized: asyncio.Queue[float]) -> None:
        self.initialized = initialized

    async def post(self, job: str, attempt: str) -> None:
        seen = codec.loads(Observed, self.request.body)
        if seen.phase is Phase.INITIALIZED:
            self.initialized.put_nowait(time.perf_counter())
        if seen.generation:
            await asyncio.sleep(min(1.0, float(self.get_query_argument("wait_s"))))
        self.finish(codec.dumps(Desired(1, job, int(attempt), 1, Mode.SAVE_AND_STOP)))


def memory_kib(pid: int) -> tuple[int, int]:
    """RSS and PSS of a process."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    figures = {name: int(value) for name, value in re.findall(r"^(Rss|Pss):\s+(\d+)", text, re.M)}
    return figures["Rss"], figures["Pss"]


async def one_run(folder: Path, url: str, initialized: asyncio.Queue[float]) -> list[float]:
    """Seconds of launch() and to ``initialized``; RSS and PSS in KiB of init, then of the agent."""
    (folder / "code").mkdir()
    (folder / "code" / "train.py").write_text("")
    spec = LaunchSpec(
        job="bench",
        attempt=1,
        name="bench",
        host="host-0",
        command=("python", "train.py"),
        code=str(folder / "code"),
        checkpoints=str(folder / "checkpoints"),
        coordinator_url=url,
        epoch=1,
        device_mode=DeviceMode.SIMULATED,
        standby=Shortcut.OFF,  # the two processes of the SideCar alone
    )
    launcher = LocalLauncher(folder / "jobs")
    start_s = time.perf_counter()
    await launcher.launch(spec, "token")
    launched_s = time.perf_counter()
    ready_s = await asyncio.wait_for(initialized.get(), WAIT_S)
    await asyncio.sleep(0.5)  # let it come to rest before memory is read
    run = folder / "jobs" / "bench" / "attempt-1" / "run"
    marker = Marker("bench", 1, str(run / "agent.sock"))
    kept_by = init_of(run)
    assert kept_by is not None
    init = kept_by.pid
    (agent,) = (e.proc.pid for e in processes.living((marker,))[marker] if e.proc.pid != init)
    figures = [launched_s - start_s, ready_s - start_s, *memory_kib(init), *memory_kib(agent)]
    await launcher.remove("bench", 1, 1.0)
    while not initialized.empty():
        initialized.get_nowait()
    return figures


async def measure(runs: int) -> list[list[float]]:
    """The figures of each run."""
    initialized: asyncio.Queue[float] = asyncio.Queue()
    route = (r"/v1/sidecar/([^/]+)/(\d+)", Reports, {"initialized": initialized})
    server = HTTPServer(Application([route], log_function=lambda handler: None))
    sockets = bind_sockets(0, "127.0.0.1")
    server.add_sockets(sockets)
    url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
    rows = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            rows.append(await one_run(Path(folder), url, initialized))
    server.stop()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="SideCar start-up time and memory")
    parser.add_argument("--runs", type=int, default=10)
    rows = asyncio.run(measure(parser.parse_args().runs))
    load = os.getloadavg()[0]
    print(
        f"conditions: Python {platform.python_version()}, {os.cpu_count()} CPUs, "
        f"load average {load:.1f}, {len(rows)} runs, one after another, warm file cache"
    )
    names = (
        ("launch() returns", "s", 1.0),
        ("launch() to initialized", "s", 1.0),
        ("init RSS", "MiB", 1024.0),
        ("init PSS", "MiB", 1024.0),
        ("agent RSS", "MiB", 1024.0),
        ("agent PSS", "MiB", 1024.0),
    )
    print(f"{'':26}{'median':>10}{'min':>10}{'max':>10}")
    for column, (name, unit, scale) in enumerate(names):
        values = [row[column] / scale for row in rows]
        low, middle, high = min(values), statistics.median(values), max(values)
        print(f"{name:26}{middle:10.3f}{low:10.3f}{high:10.3f}  {unit}")


if __name__ == "__main__":
    main()
