"""Latency of a cold decision of a policy, and its growth with jobs and GPUs.

    .venv/bin/python benchmarks/decision_latency.py [--quick] [--policy NAME] [--plot FOLDER]

Prints a JSON document with the conditions. Cold: the policy gets the snapshot for the first time
and has nothing cached; ``after_one_report``: only one job has changed, as in a daemon. ``wall_ms``
is the time of ``policy.decide`` alone, ``cpu_ms`` the processor time of the same calls (on a busy
machine the two differ). ``snapshot_ms`` is the time of the engine for a snapshot: cold, and after a
report of one of a thousand jobs (the views of the others are cached).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from reshape_controller.core.engine import Engine
from reshape_controller.core.knowledge import Measured
from reshape_controller.core.model import (
    Gpu,
    GpuId,
    GpuState,
    Host,
    HostId,
    Job,
    JobId,
    JobSpec,
    JobState,
    Length,
    LengthUnit,
    Mechanism,
    Stage,
)
from reshape_controller.core.plan import HostView, JobView, Policy, Snapshot
from reshape_controller.core.profile_book import ProfileBook
from reshape_controller.core.recorded_speeds import default_curve
from reshape_controller.policies import make_policy
from reshape_controller.scheduling.cluster_index import ClusterIndex
from reshape_profiles.chart import line_chart
from reshape_profiles.schema import Profile, SpeedPoint
from reshape_sidecar.wire import Progress

SIZES = (1, 2, 3, 4, 5, 6, 7, 8)
GPUS_PER_HOST = 8
TYPES = 14
GPU_TYPES = ("P100", "V100")


def book(draw: random.Random) -> ProfileBook:
    """Return profiles of fourteen job types on two GPU types."""
    known = ProfileBook()
    for number in range(TYPES):
        points = []
        for gpu_type in GPU_TYPES:
            base = draw.uniform(0.1, 0.6)
            points += [SpeedPoint(gpu_type, n, base * default_curve(n)) for n in (1, 2, 4, 8)]
        known = known.with_profile(Profile(f"type-{number}", speed=tuple(points)))
    return known


def view(draw: random.Random, name: str, place: int, size: int, host: HostView | None) -> JobView:
    """Return a job in the middle of its training, or (size 0) a queued job."""
    total = draw.randint(2_000, 40_000)
    kind = f"type-{draw.randrange(TYPES)}"
    gpu_type = host.gpu_type if host is not None else ""
    done = draw.randrange(total) if size else 0
    spec = JobSpec(name, ("train",), SIZES, Length(LengthUnit.STEPS, float(total)), job_type=kind)
    return JobView(
        id=JobId(name),
        spec=spec,
        state=JobState.RUNNING if size else JobState.SUBMITTED,
        place=place,
        sizes=SIZES,
        size=size,
        host=host.id if host is not None else None,
        frozen=False,
        initialized=False,
        submitted_at_s=1_000.0,
        started_at_s=1_000.0 if size else None,
        not_before_s=0.0,
        no_shrink_before_s=0.0,
        reshaped_at_s=None,
        progress=Progress(step=done, total_steps=total) if size else Progress(),
        gpu_type=gpu_type,
        trains=size > 0,
        progress_at_s=1_499.0 if size else None,
        measured=(Measured(gpu_type, size, draw.uniform(0.1, 0.5), 5),) if size else (),
    )


def snapshot(running: int, queued: int, seed: int, *, size: int | None = None) -> Snapshot:
    """Return a snapshot of ``running`` jobs on full hosts of eight GPUs, each on 1 to 4 GPUs.

    With ``size`` = 9 there are two jobs on each host of 18 GPUs, each with eight smaller sizes.
    """
    draw = random.Random(seed)
    per_host = GPUS_PER_HOST if size is None else 2 * size
    jobs: list[JobView] = []
    hosts: list[HostView] = []
    while len(jobs) < running:
        number = len(hosts)
        kind = GPU_TYPES[number % 2]
        host = HostView(HostId(f"host-{number:05d}"), kind, 0, per_host, per_host)
        left = per_host
        while left and len(jobs) < running:
            wanted = size or min(left, draw.randint(1, 4))
            left -= wanted
            jobs.append(view(draw, f"job-{len(jobs):05d}", len(jobs), wanted, host))
        hosts.append(replace(host, idle=left))
    if size is not None:
        sizes = tuple(range(1, size + 1))
        jobs = [
            replace(job, sizes=sizes, spec=replace(job.spec, optional_gpus=sizes)) for job in jobs
        ]
    queue = tuple(
        view(draw, f"new-{number:05d}", running + number, 0, None) for number in range(queued)
    )
    hosts[-1] = replace(hosts[-1], idle=0, usable=per_host - hosts[-1].idle)
    return Snapshot(
        1_500.0, Mechanism.SIDECAR, queue, tuple(jobs), tuple(hosts), profiles=book(draw)
    )


def figures(milliseconds: list[float]) -> dict[str, float]:
    """Return percentiles of the latencies of sequential operations."""
    ordered = sorted(milliseconds)
    return {
        "p50": round(statistics.median(ordered), 2),
        "p99": round(ordered[int(0.99 * (len(ordered) - 1))], 2),
        "max": round(ordered[-1], 2),
    }


def after_one_report(policy: Policy, seen: Snapshot) -> Snapshot:
    """Return the snapshot a second after a decision, with a report of one job."""
    index, first = ClusterIndex(), seen.running[0]
    policy.decide(index.follow(seen, {}))
    progress = replace(first.progress, step=first.progress.step + 3)
    reported = replace(first, progress=progress, progress_at_s=seen.now_s + 1.0)
    running = (reported, *seen.running[1:])
    later = replace(seen, now_s=seen.now_s + 1.0, running=running)
    return index.follow(later, {first.id: reported})


def measured(
    policy: Policy, repeats: int, make: Callable[[int], Snapshot], *, again: bool = False
) -> dict[str, object]:
    """Measure decisions on ``repeats`` clusters, cold or (``again``) after a report of one job."""
    wall: list[float] = []
    cpu: list[float] = []
    weighed: list[int] = []
    for seed in range(repeats):
        seen = make(seed)
        if again:
            seen = after_one_report(policy, seen)
        gc.collect()
        start, start_cpu = time.perf_counter(), time.process_time()
        plan = policy.decide(seen)
        cpu.append((time.process_time() - start_cpu) * 1e3)
        wall.append((time.perf_counter() - start) * 1e3)
        weighed.append(plan.weighed)
    return {
        "repeats": repeats,
        "weighed_p50": int(statistics.median(weighed)),
        "wall_ms": figures(wall),
        "cpu_ms": figures(cpu),
    }


def engine_of(running: int) -> Engine:
    """Return an engine with ``running`` training jobs on two GPUs each."""
    engine = Engine()
    state = engine.state
    for number in range(running):
        host, job = HostId(f"host-{number // 4}"), JobId(f"job-{number}")
        gpus = tuple(GpuId(f"gpu-{number}-{k}") for k in range(2))
        known = state.hosts.get(host)
        state.put_host(Host(host, "V100", (known.gpus if known else ()) + gpus))
        for index, gpu in enumerate(gpus):
            state.put_gpu(Gpu(gpu, host, index, GpuState.IN_USE, job))
        spec = JobSpec(job, ("train",), SIZES, Length(LengthUnit.STEPS, 1000.0))
        state.put_job(
            Job(
                job,
                spec,
                number,
                0.0,
                state=JobState.RUNNING,
                stage=Stage.TRAINING,
                host=host,
                gpus=gpus,
            )
        )
    return engine


def snapshots(running: int, repeats: int) -> dict[str, object]:
    """Measure the milliseconds of a snapshot, cold and after a report of one job."""
    cold: list[float] = []
    warm: list[float] = []
    for number in range(repeats):
        engine = engine_of(running)
        start = time.perf_counter()
        engine.snapshot()
        cold.append((time.perf_counter() - start) * 1e3)
        job = engine.state.jobs[JobId(f"job-{number % running}")]
        engine.state.put_job(replace(job, progress=Progress(step=number + 1)))
        start = time.perf_counter()
        engine.snapshot()
        warm.append((time.perf_counter() - start) * 1e3)
    return {"running": running, "cold": figures(cold), "after_one_report": figures(warm)}


def growth(policy: Policy, repeats: int, plot: Path | None) -> list[dict[str, object]]:
    """Measure the median processor time of a decision against running jobs (and GPUs)."""
    rows: list[dict[str, object]] = []
    lines: dict[str, list[tuple[float, float]]] = {}
    for queued in (1, 1_000):
        for running in (100, 250, 500, 1_000, 2_000, 4_000):
            seen = snapshot(running, queued, 0)
            gpus = sum(host.usable for host in seen.hosts)
            row = measured(
                policy,
                repeats,
                lambda seed, r=running, q=queued: snapshot(r, q, seed),  # type: ignore[misc]
            )
            rows.append({"running": running, "queued": queued, "gpus": gpus, **row})
            cpu = row["cpu_ms"]
            assert isinstance(cpu, dict)
            lines.setdefault(f"jobs, {queued} queued", []).append((running, cpu["p50"]))
            lines.setdefault(f"GPUs, {queued} queued", []).append((gpus, cpu["p50"]))
    if plot is not None:
        plot.mkdir(parents=True, exist_ok=True)
        for what, label in (("jobs", "running jobs"), ("GPUs", "GPUs")):
            chart = line_chart(
                {name: points for name, points in lines.items() if name.startswith(what)},
                title=f"A cold decision against {label}",
                x_label=label,
                y_label="ms (median, processor time)",
            )
            (plot / f"decision-latency-{what.lower()}.svg").write_text(chart)
    return rows


def conditions() -> dict[str, object]:
    """Return the conditions of the measurement."""
    return {
        "python": sys.version.split()[0],
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load_1_min": round(os.getloadavg()[0], 2),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="fewer repetitions")
    arguments.add_argument("--policy", default="adaptive")
    arguments.add_argument("--plot", type=Path, help="folder for the growth plots (SVG)")
    options = arguments.parse_args()
    policy = make_policy(options.policy)
    repeats = 10 if options.quick else 200
    document = {
        "policy": options.policy,
        "conditions": conditions(),
        "decision_1000_running": measured(policy, repeats, lambda seed: snapshot(1000, 1, seed)),
        "decision_1000_running_1000_queued": measured(
            policy, repeats, lambda seed: snapshot(1000, 1000, seed)
        ),
        "decision_1000_running_8_options_each": measured(
            policy, repeats, lambda seed: snapshot(1000, 1, seed, size=9)
        ),
        "decision_1000_running_8_options_each_1000_queued": measured(
            policy, repeats, lambda seed: snapshot(1000, 1000, seed, size=9)
        ),
        "after_one_report_1000_running": measured(
            policy, repeats, lambda seed: snapshot(1000, 1, seed), again=True
        ),
        "after_one_report_1000_running_1000_queued": measured(
            policy, repeats, lambda seed: snapshot(1000, 1000, seed), again=True
        ),
        "decision_10000_running_1000_queued": measured(
            policy, max(10, repeats // 5), lambda seed: snapshot(10_000, 1_000, seed)
        ),
        "after_one_report_10000_running_1000_queued": measured(
            policy, max(10, repeats // 5), lambda seed: snapshot(10_000, 1_000, seed), again=True
        ),
        "snapshot_ms": snapshots(1000, repeats),
        "growth": growth(policy, 3 if options.quick else 15, options.plot),
    }
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
