"""How fast a replay is, and how that grows with jobs and with GPUs.

    .venv/bin/python benchmarks/replay.py [--quick] [--policy NAME] [--out FOLDER]

Writes out/bench/replay.json: ``{conditions, rows: [{policy, gpus, jobs, wall_s, cpu_s,
events_per_s, peak_rss_mb, decision_p50_ms, decision_p99_ms, decisions, plans}]}``, and prints it;
and the growth as replay-growth.svg beside it. Each row is one process and one run, from the inputs
in memory to the metrics; imports and the drawing of the workload are not counted. The workload is
job set one on half V100, half P100, hosts of eight, with 10,000 jobs in 44,000 s on 1,024 GPUs, and
the growth at the same density; ``decision`` is ``policy.decide`` with the snapshot, cold: nothing
is kept between decisions. On a busy machine wall and processor time differ; both are there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

from reshape_controller.core.engine import Engine
from reshape_controller.core.plan import Plan
from reshape_controller.policies import PRESETS, make_policy
from reshape_controller.replay.generate import RECIPES
from reshape_controller.replay.inputs import Costs, cluster_of
from reshape_controller.replay.setup import Setup
from reshape_controller.replay.shell import replay
from reshape_profiles.chart import line_chart
from reshape_profiles.loader import bundled

GPUS_PER_HOST = 8
SCALES = ((16, 40, 11_000.0), (64, 160, 11_000.0), (1024, 10_000, 44_000.0))
"""GPUs, jobs, last arrival: those of the peers' figures."""
GROWTH_JOBS = ((64, 150), (64, 300), (64, 600), (64, 1200))
GROWTH_GPUS = ((32, 300), (64, 600), (128, 1200))
TIMEOUT_S = 1800.0


def one(policy: str, gpus: int, jobs: int, last_s: float) -> dict[str, object]:
    """Replay once in this process."""
    hosts = max(1, gpus // GPUS_PER_HOST // 2)
    bundle = bundled()
    setup = Setup(
        bundle,
        cluster_of(f"{hosts}*8xV100+{hosts}*8xP100"),
        Costs("paper", dict(bundle.costs)["paper"]),
        RECIPES["one"],
        jobs=jobs,
        last_s=last_s,
    )
    scene = setup.scene(0)
    preset = PRESETS[policy]
    chosen = make_policy(preset.policy)
    took_s: list[float] = []
    plans = 0

    def decide(engine: Engine) -> Plan:
        nonlocal plans
        begin_s = time.perf_counter()
        plan = chosen.decide(engine.snapshot())
        took_s.append(time.perf_counter() - begin_s)
        plans += bool(plan.targets)
        return plan

    begin_s, cpu_s = time.perf_counter(), time.process_time()
    result = replay(scene, chosen, preset.mechanism, on_decision=decide)
    wall_s, cpu_s = time.perf_counter() - begin_s, time.process_time() - cpu_s
    took_s.sort()
    return {
        "policy": policy,
        "gpus": scene.cluster.gpus,
        "jobs": jobs,
        "wall_s": round(wall_s, 3),
        "cpu_s": round(cpu_s, 3),
        "jobs_per_s": round(jobs / wall_s, 1),
        "events": result.engine_events,
        "events_per_s": round(result.engine_events / wall_s, 1),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "decision_p50_ms": round(1e3 * took_s[len(took_s) // 2], 3),
        "decision_p99_ms": round(1e3 * took_s[int(len(took_s) * 0.99)], 3),
        "decisions": len(took_s),
        "plans": plans,
        "makespan_s": result.metrics.makespan_s,
    }


def apart(policy: str, gpus: int, jobs: int, last_s: float) -> dict[str, object]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--one", policy, str(gpus), str(jobs), str(last_s)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        )
    except subprocess.TimeoutExpired:
        return {"policy": policy, "gpus": gpus, "jobs": jobs, "wall_s": None, "over_s": TIMEOUT_S}
    row = json.loads(done.stdout)
    assert isinstance(row, dict)
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def density_s(gpus: int, jobs: int) -> float:
    """Last arrival at the density of the largest scale."""
    most_gpus, most_jobs, last_s = SCALES[-1]
    return last_s * (jobs / most_jobs) * (most_gpus / gpus)


def growth(policy: str) -> list[dict[str, object]]:
    """Rows for the growth with jobs, and with GPUs at the same density."""
    pairs = [*GROWTH_JOBS, *(pair for pair in GROWTH_GPUS if pair not in GROWTH_JOBS)]
    return [apart(policy, gpus, jobs, density_s(gpus, jobs)) for gpus, jobs in pairs]


def plot(rows: list[dict[str, object]], path: Path) -> None:
    """Processor seconds against jobs: on 64 GPUs, and with GPUs in proportion."""
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
    parser.add_argument("--one", nargs=4, metavar=("POLICY", "GPUS", "JOBS", "LAST"))
    parser.add_argument("--policy", default="adaptive")
    parser.add_argument("--quick", action="store_true", help="leave out the largest scale")
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    given = parser.parse_args()
    if given.one:
        policy, gpus, jobs, last_s = given.one
        print(json.dumps(one(policy, int(gpus), int(jobs), float(last_s))))
        return
    scales = SCALES[:-1] if given.quick else SCALES
    rows = [apart(given.policy, *scale) for scale in scales]
    grown = growth(given.policy)
    document = {
        "conditions": {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            "load_1m": os.getloadavg()[0],
        },
        "rows": [*rows, *grown],
    }
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "replay.json").write_text(json.dumps(document, indent=2) + "\n")
    plot(grown, given.out / "replay-growth.svg")
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
