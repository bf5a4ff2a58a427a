"""How long after a kill -9 does each part work again? Beside the table of FfDL (its Table 3).

    python benchmarks/recovery.py [--repeats 20] [--only api coordinator agent training container]

| Row | Killed | Until |
|---|---|---|
| api | a daemon with one job; started again at once | the first acknowledged submission |
| coordinator | the same with 1,000 jobs, 200 of them training | all SideCars have answered |
| agent | the agent of a training job | the next agent's first report |
| training | a Keras job's training process (TensorFlow) | the next process has done a step |
| container | init of such a job, with all of its container | the same, in the next container |

Processes of one machine: FfDL's figures include the restart of a pod. Each repeat checks what it
waits for: the API's answer is right, and the jobs, their GPUs and their processes are those of
before. CPU is what the restarted process has used by then, so that a busy machine can be told from
a slow start. Prints a table for docs/reliability.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support import sidecar_bed, training_programs  # noqa: E402
from tests.support.daemon_bed import Bed, bed, eventually  # noqa: E402
from tests.support.light_bed import LightBed, until, use_of  # noqa: E402
from tests.support.light_sidecars import LightSidecars  # noqa: E402

JOBS, TRAINING = 1000, 200
HEARTBEAT_S = 2.0
TENSORFLOW_S = 300.0
"""What starts of TensorFlow may take on a busy machine."""
STEPS_BEFORE = 5
"""Steps of a Keras job before its kill."""
PERCENTILE = 0.95
Times = tuple[float, float | None]
"""Seconds from the kill, and seconds of CPU of the restarted process; None: not measured."""
FFDL = {
    "api": "API: 3 to 5 s",
    "coordinator": "LCM: 4 to 6 s (Guardian: 1 to 2 s)",
    "agent": "Helper: 3 to 4 s",
    "training": "Learner: 10 to 20 s",
    "container": "Learner: 10 to 20 s",
}
SCRIPT = (ROOT / "examples" / "mnist_like" / "train.py").read_text()


def api(repeats: int) -> Iterator[Times]:
    """Kill a daemon that keeps one job."""
    with tempfile.TemporaryDirectory() as folder:
        for home in bed(Path(folder)):
            home.up()
            job = home.submit("steady", steps=10**6, optional_gpus=[4])
            pid = home.pid(job)
            for number in range(repeats):
                yield _api(home, f"waits-{number}")
                assert home.job(job)["pid"] == pid


def _api(home: Bed, name: str) -> Times:
    record = json.loads(home.record(name, optional_gpus=[4]).read_text())
    home.stop(signal.SIGKILL)
    begin_s = time.monotonic()
    home.launch()
    eventually(lambda: _accepts(home, record | {"code": str(home.code)}))
    return time.monotonic() - begin_s, _cpu_s(home)


def _cpu_s(home: Bed) -> float:
    assert home.daemon is not None
    return use_of(home.daemon.pid).cpu_s


def _accepts(home: Bed, record: object) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return home.post("/v1/jobs", record)[0] == 201
    return False


def coordinator(repeats: int) -> Iterator[Times]:
    """Kill a daemon with many jobs."""
    with tempfile.TemporaryDirectory() as folder:
        home = LightBed(Path(folder), TRAINING)
        try:
            home.start_daemon()
            home.wait_until_it_answers()
            yield from asyncio.run(_coordinator(home, repeats))
        finally:
            home.close()


async def _coordinator(home: LightBed, repeats: int) -> list[Times]:
    sidecars = LightSidecars(home.home / "jobs", HEARTBEAT_S)
    playing = asyncio.create_task(sidecars.run())
    took_s: list[Times] = []
    await asyncio.to_thread(home.submit_many, JOBS)
    await until("200 train", lambda: len(_training(home)) == TRAINING)
    before = _training(home)
    for _ in range(repeats):
        await asyncio.to_thread(home.stop, signal.SIGKILL)
        begin_s = time.monotonic()
        home.start_daemon()
        await until("all SideCars have answered", lambda: _observed(home), every_s=0.05)
        took_s.append((time.monotonic() - begin_s, _cpu_s(home)))
        assert await asyncio.to_thread(_training, home) == before
        assert all(each.starts == 1 for each in sidecars.of.values()), "a training started again"
    playing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await playing
    return took_s


def _training(home: LightBed) -> dict[str, tuple[str, ...]]:
    """Return the GPUs of each job that trains, of all jobs that were submitted."""
    jobs = home.all_jobs()
    assert len(jobs) == JOBS, len(jobs)
    return {job["id"]: tuple(job["gpus"]) for job in jobs if job["stage"] == "training"}


def _observed(home: LightBed) -> bool:
    status = home.status()
    assert home.daemon is not None
    assert home.daemon.poll() is None, home.log.read_text()[-2000:]
    return bool(status) and status["ready"] and not status["waits_for"]


def agent(repeats: int) -> Iterator[Times]:
    """Kill the agent of a job, each time of another one."""
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder, sidecar_bed.bed(Path(folder)) as job:
            yield _agent(job)
            job.remove()


def _agent(job: sidecar_bed.Bed) -> Times:
    pid = job.training(training_programs.PLAIN).pid
    job.kill_agent()
    begin_s, reports = time.monotonic(), len(job.coordinator.reports)
    sidecar_bed.eventually("a report", lambda: len(job.coordinator.reports) > reports)
    took_s, newest = time.monotonic() - begin_s, job.coordinator.newest
    assert newest is not None
    assert newest.pid == pid
    return took_s, use_of(job.agent()).cpu_s


def training(repeats: int) -> Iterator[Times]:
    """Kill the training process of a Keras job, each time of another one."""
    yield from _keras(repeats, lambda home, job: int(job["pid"]))


def container(repeats: int) -> Iterator[Times]:
    """Kill init of a Keras job, each time of another one."""
    yield from _keras(repeats, _init)


def _init(home: Bed, job: Any) -> int:
    file = home.home / "jobs" / job["id"] / f"attempt-{job['attempt']}" / "run" / "init.json"
    return int(json.loads(file.read_text())["pid"])


def _keras(repeats: int, victim: Callable[[Bed, Any], int]) -> Iterator[Times]:
    with tempfile.TemporaryDirectory() as folder:
        for home in bed(Path(folder)):
            home.up()
            for number in range(repeats):
                yield _keras_once(home, f"keras-{number}", victim), None


def _keras_once(home: Bed, name: str, victim: Callable[[Bed, Any], int]) -> float:
    key = _submit_keras(home, name)
    before = _reaches(home, key, lambda job: job["step"] >= STEPS_BEFORE)
    os.kill(victim(home, before), signal.SIGKILL)
    begin_s = time.monotonic()
    after = _reaches(home, key, lambda job: job["pid"] != before["pid"])
    took_s = time.monotonic() - begin_s
    assert after["failures"] == 1, after
    assert home.reshape("cancel", key).returncode == 0
    home.reaches(key, "cancelled")
    return took_s


def _submit_keras(home: Bed, name: str) -> str:
    path = home.record(
        name,
        SCRIPT,
        command=["python", f"{name}.py", "--epochs", "{epochs}", "--samples", "640"],
        framework="keras",
        optional_gpus=[2],
        steps=None,
        epochs=100_000,
        global_batch=64,
    )
    return str(home.json("submit", str(path))["id"])


def _reaches(home: Bed, key: str, holds: Callable[[Any], Any]) -> Any:
    def there() -> Any:
        job = home.job(key)
        assert job["state"] not in ("failed", "cancelled", "rejected"), job
        return job if job["phase"] == "running" and holds(job) else None

    return eventually(there, least_s=TENSORFLOW_S, text=lambda: str(home.job(key)))


ROWS: dict[str, Callable[[int], Iterator[Times]]] = {
    "api": api,
    "coordinator": coordinator,
    "agent": agent,
    "training": training,
    "container": container,
}


def row(found: list[Times]) -> str:
    """Return the cells of the times."""
    took_s = sorted(each for each, _ in found)
    cpu_s = [cpu for _, cpu in found if cpu is not None]
    high_s = took_s[min(len(took_s) - 1, int(PERCENTILE * len(took_s)))]
    cpu = f"{statistics.median(cpu_s):.2f}" if cpu_s else ""
    return f"{statistics.median(took_s):.2f}, {high_s:.2f}, {took_s[-1]:.2f} | {cpu}"


def load(loads: list[float]) -> str:
    """Return the range of the machine's load average."""
    return f"{min(loads):.0f} to {max(loads):.0f}"


def main() -> None:
    """Measure the rows, one after another, and print each as it is there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS))
    options = parser.parse_args()
    print("| Part | Kills | p50, p95, maximum (s) | CPU, p50 (s) | Load | FfDL |")
    print("|---|---|---|---|---|---|", flush=True)
    for name in options.only:
        found, loads = [], []
        for took_s, cpu_s in ROWS[name](options.repeats):
            found.append((took_s, cpu_s))
            loads.append(os.getloadavg()[0])
            print(f"{name} {took_s:.2f} s, load {loads[-1]:.0f}", file=sys.stderr)
        print(
            f"| {name} | {len(found)} | {row(found)} | {load(loads)} | {FFDL[name]} |", flush=True
        )


if __name__ == "__main__":
    main()
