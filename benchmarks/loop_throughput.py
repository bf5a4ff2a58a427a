"""What a running daemon's loop costs at many jobs, and what of it grows with time.

    python benchmarks/loop_throughput.py [--jobs 1000] [--rounds 40]

Does: brings the jobs to train in the real engine, then lets every SideCar report progress through
the real hub and loop onto a real SQLite file, and measures each part of a batch. Prints one JSON
document. Never: starts a process of a job, or a policy that decides anything.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path

import structlog

from reshape_controller.core import events as ev
from reshape_controller.core import invariants
from reshape_controller.core.commands import Command
from reshape_controller.core.engine import Engine
from reshape_controller.core.model import GpuId, HostId, Job, JobId, JobSpec
from reshape_controller.core.plan import Plan, Snapshot, Target
from reshape_controller.live.clock import WallClock
from reshape_controller.live.loop import Loop, Settings
from reshape_controller.live.sidecar_hub import SidecarHub
from reshape_controller.store.sqlite.store import SqliteStore
from reshape_sidecar.wire import Observed, Phase, Progress

HOST = HostId("host-0")
BATCH_JOBS = 100
"""Reports handed over together: 1,000 jobs that report every 10 s give 100 a second."""


class FirstFit:
    """Each queued job gets its one GPU."""

    name = "first-fit"

    def decide(self, snapshot: Snapshot) -> Plan:
        if not snapshot.queued or not snapshot.hosts[0].idle:
            return Plan()
        job = snapshot.queued[0]
        return Plan((Target(job.id, 1, HOST),), "first-fit", about=job.id)


class Nothing:
    """Effects without effect; the hub alone gets the desired states."""

    def __init__(self) -> None:
        self.hub: SidecarHub | None = None

    def carry_out(self, engine: Engine, commands: tuple[Command, ...]) -> None:
        assert self.hub is not None
        for job in engine.state.jobs.values():
            desired = engine.desired(job.id)
            if desired is not None:
                self.hub.set_desired(desired)


def report(job: Job, sequence: int, phase: Phase, step: int = 0) -> Observed:
    """What the job's SideCar says."""
    return Observed(
        job.id,
        job.attempt,
        job.generation,
        sequence,
        phase,
        epoch=1,
        devices=tuple(job.gpus),
        progress=Progress(step=step, total_steps=10**9, seconds_per_step=0.1),
        stopped_generation=job.generation,
    )


async def main(jobs: int, rounds: int) -> dict[str, object]:
    """Measure, on a store in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder, "store.sqlite"))
        await store.open()
        clock, effects = WallClock(), Nothing()
        loop = Loop(store, Settings(FirstFit()), clock)
        clock_s = [0.0]
        hub = effects.hub = SidecarHub(loop.post, lambda: clock_s[0], clock.now_s)
        await loop.start(effects)
        work = asyncio.create_task(loop.run())
        gpus = tuple(GpuId(f"gpu-{n}") for n in range(jobs))
        await loop.commit(ev.HostAdded(HOST, "V100", gpus))
        for n in range(jobs):
            spec = JobSpec(f"job-{n}", ("python", "train.py"), (1,))
            loop.post(ev.JobSubmitted(JobId(f"job-{n}"), spec))
        state = loop.engine.state
        for sequence, phase in enumerate((Phase.INITIALIZED, Phase.RUNNING)):
            await settled(loop)
            for job in tuple(state.jobs.values()):
                loop.post(ev.SideCarReported(report(job, sequence, phase)))
        await settled(loop)
        await loop.commit(ev.HostAdded(HOST, "V100", gpus))
        training = sum(job.stage.value == "training" for job in state.jobs.values())
        assert training == jobs, f"{training} of {jobs} train"
        figures: dict[str, object] = {"jobs": jobs, "cpus": os.cpu_count()}
        figures["invariants_ms"] = timed_ms(lambda: invariants.check(state))
        figures["dump_ms"] = timed_ms(state.dump, 3)
        before = grown(loop, hub)
        batches, heartbeats = [], []
        for n in range(rounds):
            clock_s[0] += 11.0
            some = tuple(state.jobs.values())[n * BATCH_JOBS % jobs :][:BATCH_JOBS]
            begin_s, busy_s = time.perf_counter(), time.process_time()
            for job in some:
                seen = report(job, 1000 + n * 10, Phase.RUNNING, 10 + n)
                await hub.exchange(job.id, job.attempt, seen, 0.0)
            heartbeats.append((time.perf_counter() - begin_s) / len(some))
            await loop.commit(ev.HostAdded(HOST, "V100", gpus[:1]))
            busy_s = time.process_time() - busy_s
            batches.append((time.perf_counter() - begin_s, busy_s))
        figures["exchange_us"] = round(statistics.median(heartbeats) * 1e6)
        figures["batch_of_100_reports_ms"] = round(
            statistics.median(b for b, _ in batches) * 1e3, 1
        )
        figures["batch_of_100_reports_cpu_ms"] = round(
            statistics.median(c for _, c in batches) * 1e3, 1
        )
        figures["before"], figures["after"] = before, grown(loop, hub)
        loop.stop()
        await work
        await store.close()
        return figures


async def settled(loop: Loop) -> None:
    """Wait until nothing waits for the loop and it has planned all it wants."""
    while loop._queue or loop.engine.wants_plan():
        await asyncio.sleep(0.01)
    await loop.commit(ev.HostUndrained(HOST))


def timed_ms(work: object, times: int = 20) -> float:
    """Median time of a call, in milliseconds."""
    assert callable(work)
    took = []
    for _ in range(times):
        begin_s = time.perf_counter()
        work()
        took.append(time.perf_counter() - begin_s)
    return round(statistics.median(took) * 1e3, 2)


def grown(loop: Loop, hub: SidecarHub) -> dict[str, int]:
    """Sizes of what could grow with time."""
    state = loop.engine.state
    return {
        "due": len(state._due),
        "ended": len(state.ended),
        "views": len(state.views),
        "link": len(hub.jobs()),
        "waiting": len(loop._queue),
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    print(json.dumps(asyncio.run(main(given.jobs, given.rounds)), indent=2))
