"""A run of a frozen workload on the real controller.

Does: start a daemon of its own, submit each job at its time over HTTP, wait until all have ended,
and return the same results as a replay. The controller gets no more information than the replay's
engine. State: the run's folder.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.replays import phases
from reshape_controller.cli.replays.live_inputs import PROFILES, TRUTH, FrozenInputs, fields_of
from reshape_controller.cli.replays.own_daemon import POLL_S, is_over, jobs_of, own_daemon
from reshape_controller.core.events import SideCarReported
from reshape_controller.core.model import JobId
from reshape_controller.replay.inputs import WorkJob
from reshape_controller.replay.metrics import JobResult
from reshape_controller.replay.setup import Contender
from reshape_controller.store.sqlite.store import SqliteStore
from reshape_gpu import requests
from reshape_gpu.client import Client
from reshape_gpu.values import JobView

LONGER_MAX = 3.0
"""A run may take this many times the replay's time, plus LATER_S."""
LATER_S = 120.0


@dataclass(frozen=True, slots=True)
class LiveRun:
    """The result of a run. ``late_steps_ratio``: late steps over all steps; ``phases``: mean
    seconds of a job in each."""

    rows: tuple[JobResult, ...]
    late_steps_ratio: float
    phases: Mapping[str, float]


def run(
    frozen: FrozenInputs,
    chosen: Contender,
    seed: int,
    folder: Path,
    expected_s: float,
    done: Callable[[int], None],
) -> LiveRun:
    """Run it in ``folder``; ``done`` is called with the number of ended jobs. Raises CliError."""
    folder.mkdir(parents=True)
    host = frozen.scene.cluster.hosts[0]
    words = ["--simulated-gpus", str(host.gpus), "--gpu-type", host.gpu_type]
    words += ["--device-truth", str((frozen.folder / TRUTH).absolute())]
    words += ["--profiles", str((frozen.folder / PROFILES).absolute())]
    words += ["--policy", chosen.policy.name, "--mechanism", chosen.mechanism.value]
    words += ["--seed", str(seed)]
    limit_s = LONGER_MAX * expected_s + LATER_S
    with own_daemon(folder, words) as client:
        _submit_all(client, frozen)
        views = _until_ended(client, len(frozen.scene.workload.jobs), limit_s, done)
    store = folder / "home" / "store.sqlite"
    late = asyncio.run(_late_steps(store))
    first_s = min(view.submitted_at_s for view in views)
    rows = tuple(_row(view, first_s) for view in views)
    late_steps_ratio = late / max(1, sum(row.steps for row in rows))
    return LiveRun(rows, late_steps_ratio, asyncio.run(phases.of_store(store)))


def _submit_all(client: Client, frozen: FrozenInputs) -> None:
    jobs = frozen.scene.workload.jobs
    begin_s = time.monotonic() - jobs[0].submit_s
    for job in jobs:
        time.sleep(max(0.0, begin_s + job.submit_s - time.monotonic()))
        client.ask(requests.submit(_record(frozen, job)))


def _record(frozen: FrozenInputs, job: WorkJob) -> dict[str, Any]:
    return {**frozen.record, **fields_of(job)}


def _until_ended(
    client: Client, count: int, limit_s: float, done: Callable[[int], None]
) -> list[JobView]:
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s:
        views = list(jobs_of(client).values())
        done(sum(map(is_over, views)))
        wrong = [v for v in views if is_over(v) and v.state != "completed"]
        if wrong:
            what = f"{wrong[0].name} is {wrong[0].state}: {wrong[0].reason}"
            raise failed(Exit.FAILED, what, wrong[0].log_folder or wrong[0].id, "see its log")
        if len(views) == count and all(map(is_over, views)):
            return views
        time.sleep(POLL_S)
    left = ", ".join(v.name for v in jobs_of(client).values() if not is_over(v))
    remedy = "if the machine is too busy, give a smaller --speed-up"
    raise failed(Exit.FAILED, f"{left} did not end within {limit_s:.0f} s", "the run", remedy)


async def _late_steps(store_file: Path) -> int:
    """Return the number of late steps of all processes, from the log."""
    found: dict[tuple[str, int, int | None, int | None], int] = {}
    store = SqliteStore(store_file)
    await store.open()
    try:
        async for record in store.read(0):
            for event in record.events:
                if isinstance(event, SideCarReported):
                    seen = event.observed
                    key = (seen.job, seen.attempt, seen.pid, seen.start_time)
                    found[key] = max(found.get(key, 0), seen.progress.late_steps)
    finally:
        await store.close()
    return sum(found.values())


def _row(view: JobView, first_s: float) -> JobResult:
    def since(at_s: float | None) -> float | None:
        return None if at_s is None else at_s - first_s

    return JobResult(
        job=JobId(view.name),
        job_type=view.job_type or "",
        state=view.state,
        submitted_s=view.submitted_at_s - first_s,
        launched_s=None,
        started_s=since(view.started_at_s),
        first_step_s=None,
        finished_s=(view.finished_at_s or view.submitted_at_s) - first_s,
        steps=view.step,
        reshape_ups=view.reshape_ups,
        reshape_downs=view.reshape_downs,
        pause_s=0.0,
        process_restarts=view.process_restarts,
        container_restarts=view.container_restarts,
    )
