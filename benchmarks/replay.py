"""Speed of a replay, its growth with jobs and GPUs, and the latency of a cold decision.

    .venv/bin/python benchmarks/replay.py [--quick] [--policy NAME] [--out FOLDER]

Writes three files to out/bench. ``replay.json`` is ``{rows: [{policy, gpus, jobs, wall_s,
events_per_s, peak_rss_mb, decision_p99_ms}]}``, one row for each bar and then those of the growth.
``replay-details.json`` has the same rows with all that was measured, bars and conditions, and
``cold``: decisions on clusters that the policy sees for the first time. ``replay-growth.svg`` is
the growth.

Each row is a process with a run, from the inputs in memory to the metrics, without imports and the
drawing of the workload. A row that exceeds its limit is aborted: its ``wall_s`` and
``events_per_s`` are null, and the details have the number of ended jobs. The workload is job set
one on half V100, half P100, hosts of eight. 10,000 jobs arrive in 44,000 s at 1,024 GPUs (an
overload, so the queue grows), 100,000 in 16,000,000 s at 64 (a load of about three quarters).
Decisions of a replay cache predictions of unchanged jobs. On a busy machine wall and processor time
differ; the details have both.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from decision_latency import snapshot as cluster

from reshape_controller.core.engine import Engine
from reshape_controller.core.plan import Plan, Policy, Snapshot
from reshape_controller.policies import PRESETS, make_policy
from reshape_controller.replay.generate import RECIPES, SIZES
from reshape_controller.replay.inputs import Costs, cluster_of
from reshape_controller.replay.setup import Setup
from reshape_controller.replay.shell import Scene, replay
from reshape_controller.scheduling.planner import Planner
from reshape_profiles.chart import line_chart
from reshape_profiles.loader import bundled

GPUS_PER_HOST = 8
BARS = (
    (16, 40, 11_000.0, 0.1, 60.0),
    (64, 160, 11_000.0, 0.3, 60.0),
    (1024, 10_000, 44_000.0, 10.0, 600.0),
    (64, 100_000, 16_000_000.0, 120.0, 500.0),
)
"""GPUs, jobs, last arrival, the bar for the wall time, and the limit of the row."""
DENSEST = BARS[2]
GROWTH_JOBS = ((64, 150), (64, 300), (64, 600), (64, 1200))
GROWTH_GPUS = ((32, 300), (64, 600), (128, 1200))
GROWTH_LIMIT_S = 120.0
COLD = ((16, 40, 5.0), (64, 160, 20.0), (1024, 2_000, 100.0))
"""GPUs, live jobs, and the bar for the 99th percentile in milliseconds."""
COLD_REPEATS = 100
COLUMNS = (
    "policy",
    "gpus",
    "jobs",
    "wall_s",
    "events_per_s",
    "peak_rss_mb",
    "decision_p99_ms",
)

Row = dict[str, object]


def peak_rss_mb() -> float:
    """Return the peak of this process; that of ``getrusage`` may include the parent's."""
    status = Path("/proc/self/status").read_text()
    kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return round(int(kib) / 1024, 1)


class TimeUp(BaseException):
    """A row took longer than its limit. It is no error of the policy, so it is no Exception."""


class TimedPlanner(Planner):
    """Measures each plan, the snapshot included, and ends the replay at a limit."""

    def __init__(self, policy: Policy, limit_s: float) -> None:
        super().__init__(policy)
        self.took_s: list[float] = []
        self.plans = self.ended = 0
        self._end_s = time.perf_counter() + limit_s

    def plan(self, engine: Engine) -> Plan:
        """Return the policy's plan. Raises TimeUp."""
        start_s = time.perf_counter()
        if start_s > self._end_s:
            self.ended = engine.state.next_place - 1 - len(engine.state.jobs)
            raise TimeUp
        plan = super().plan(engine)
        self.took_s.append(time.perf_counter() - start_s)
        self.plans += bool(plan.targets)
        return plan


def scene_of(gpus: int, jobs: int, last_s: float, sizes: tuple[int, ...] = SIZES) -> Scene:
    """Return a scene of job set one on half V100, half P100."""
    hosts = max(1, gpus // GPUS_PER_HOST // 2)
    bundle = bundled()
    setup = Setup(
        bundle,
        cluster_of(f"{hosts}*8xV100+{hosts}*8xP100"),
        Costs("paper", dict(bundle.costs)["paper"]),
        RECIPES["one"],
        jobs=jobs,
        last_s=last_s,
        sizes=sizes,
    )
    return setup.scene(0)


def one(policy: str, gpus: int, jobs: int, last_s: float, limit_s: float) -> Row:
    """Replay once in this process."""
    scene = scene_of(gpus, jobs, last_s)
    preset = PRESETS[policy]
    chosen = make_policy(preset.policy)
    begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
    planner = TimedPlanner(chosen, limit_s)
    try:
        result = replay(scene, chosen, preset.mechanism, planner=planner)
    except TimeUp:
        result = None
    wall_s, cpu_s = time.perf_counter() - begin_s, time.process_time() - begin_cpu_s
    took_s = sorted(planner.took_s)
    return {
        "policy": policy,
        "gpus": scene.cluster.gpus,
        "jobs": jobs,
        "wall_s": round(wall_s, 3) if result else None,
        "cpu_s": round(cpu_s, 3),
        "jobs_ended": jobs if result else planner.ended,
        "events": result.engine_events if result else None,
        "events_per_s": round(result.engine_events / wall_s, 1) if result else None,
        "peak_rss_mb": peak_rss_mb(),
        "decision_p50_ms": round(1e3 * took_s[len(took_s) // 2], 3),
        "decision_p99_ms": round(1e3 * took_s[int(len(took_s) * 0.99)], 3),
        "decisions": len(took_s),
        "decisions_s": round(sum(took_s), 3),
        "plans": planner.plans,
        "makespan_s": result.metrics.makespan_s if result else None,
        "load_1m": round(os.getloadavg()[0], 2),
    }


def apart(policy: str, gpus: int, jobs: int, last_s: float, limit_s: float) -> Row:
    """Replay once in a process of its own."""
    given = (policy, gpus, jobs, last_s, limit_s)
    command = [sys.executable, __file__, "--one", *map(str, given)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    row = json.loads(done.stdout)
    assert isinstance(row, dict)
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def full(gpus: int, live: int, seed: int) -> Snapshot:
    """Return a full cluster on which the other live jobs wait."""
    drawn = cluster(gpus, live, seed)
    hosts = drawn.hosts[: gpus // GPUS_PER_HOST]
    running = tuple(job for job in drawn.running if job.host in {host.id for host in hosts})
    queued = drawn.queued[: live - len(running)]
    return replace(drawn, hosts=hosts, running=running, queued=queued)


def cold(policy: str, gpus: int, live: int, bar_ms: float) -> Row:
    """Measure decisions on full clusters that are new to the policy, with a queue."""
    chosen = make_policy(PRESETS[policy].policy)
    took_ms: list[float] = []
    cpu_ms: list[float] = []
    for seed in range(COLD_REPEATS):
        seen = full(gpus, live, seed)
        gc.collect()
        begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
        chosen.decide(seen)
        cpu_ms.append(1e3 * (time.process_time() - begin_cpu_s))
        took_ms.append(1e3 * (time.perf_counter() - begin_s))
    took_ms.sort()
    cpu_ms.sort()
    row: Row = {"policy": policy, "gpus": gpus, "live_jobs": live, "running": len(seen.running)}
    for name, sample in (("decision", took_ms), ("decision_cpu", cpu_ms)):
        row[f"{name}_p50_ms"] = round(sample[len(sample) // 2], 3)
        row[f"{name}_p99_ms"] = round(sample[int(len(sample) * 0.99)], 3)
    row |= {"bar_ms": bar_ms, "load_1m": round(os.getloadavg()[0], 2)}
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def growth(policy: str) -> list[Row]:
    """Measure rows for the growth with jobs and GPUs, at the density of the densest bar."""
    most_gpus, most_jobs, last_s, _, _ = DENSEST
    pairs = [*GROWTH_JOBS, *(pair for pair in GROWTH_GPUS if pair not in GROWTH_JOBS)]
    return [
        apart(policy, gpus, jobs, last_s * (jobs / most_jobs) * (most_gpus / gpus), GROWTH_LIMIT_S)
        for gpus, jobs in pairs
    ]


def plot(rows: list[Row], path: Path) -> None:
    """Plot processor seconds against jobs: on 64 GPUs, and with GPUs in proportion."""
    known = {(row["gpus"], row["jobs"]): row for row in rows if row["wall_s"] is not None}
    series = {}
    for label, pairs in (("on 64 GPUs", GROWTH_JOBS), ("GPUs in proportion", GROWTH_GPUS)):
        points = [
            (float(str(pair[1])), float(str(known[pair]["cpu_s"])))
            for pair in pairs
            if pair in known
        ]
        if points:
            series[label] = points
    text = line_chart(series, title="Replay time", x_label="jobs", y_label="processor seconds")
    path.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--one", nargs=5, metavar=("POLICY", "GPUS", "JOBS", "LAST", "LIMIT"))
    parser.add_argument("--policy", default="adaptive")
    parser.add_argument("--quick", action="store_true", help="leave out the two largest scales")
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    given = parser.parse_args()
    if given.one:
        policy, gpus, jobs, last_s, limit_s = given.one
        print(json.dumps(one(policy, int(gpus), int(jobs), float(last_s), float(limit_s))))
        return
    conditions: dict[str, object] = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
    }
    rows = []
    for gpus, jobs, last_s, bar_s, limit_s in BARS[:2] if given.quick else BARS:
        row = apart(given.policy, gpus, jobs, last_s, limit_s)
        rows.append(row | {"bar_s": bar_s, "limit_s": limit_s})
    decisions = [cold(given.policy, *bar) for bar in COLD]
    grown = growth(given.policy)
    details = {"conditions": conditions, "rows": [*rows, *grown], "cold": decisions}
    short = {"rows": [{name: row[name] for name in COLUMNS} for row in (*rows, *grown)]}
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "replay.json").write_text(json.dumps(short, indent=2) + "\n")
    (given.out / "replay-details.json").write_text(json.dumps(details, indent=2) + "\n")
    plot(grown, given.out / "replay-growth.svg")
    print(json.dumps(short, indent=2))


if __name__ == "__main__":
    main()
