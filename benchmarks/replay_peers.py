"""How long other simulators take for the jobs of the largest bar, in turns with replays.

    python benchmarks/replay_peers.py --python PYTHON [--alibaba FOLDER] [--gavel FOLDER]

``FOLDER`` is ``cluster-trace-gpu-v2020/simulator`` of alibaba/clusterdata, or ``scheduler`` of
stanford-futuredata/gavel, as you got them; nothing of either is here. ``PYTHON`` can import what
they need: numpy and matplotlib, cvxpy with ecos and psutil.

Each gets 10,000 jobs in 44,000 s on 1,024 GPUs that take one GPU each and last as long as in a
replay of job set one at size one: about as much work as the cluster can do. Alibaba's simulator
starts them shortest first, or in order, on one host with all GPUs; it places and reshapes nothing.
Gavel's assigns GPU types for each round of 360 s, in order or by a linear program; its jobs are of
its own types, as long on its V100. Ours places them on hosts of eight: ``fifo`` the same jobs of
one GPU, and ``adaptive`` with sizes 1, 2, 4 and 8 to choose from.

All are timed in processor seconds, without imports, the drawing of the workload and the reading of
files. Prints one JSON line for each run, then the medians and the ratios of the bars; runs are kept
in ``out/bench/replay-peers.jsonl``, and another call on the same commit adds the missing ones.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from replay import BARS, scene_of
from replay_ratio import git

from reshape_controller.policies import PRESETS, make_policy
from reshape_controller.replay.shell import replay

GPUS, JOBS, LAST_S, _, _ = BARS[2]
ROUND_S = 360
FIFO, ADAPTIVE = "reshape, fifo", "reshape, adaptive"
SHORTEST, IN_ORDER = "alibaba, shortest first", "alibaba, in order"
GAVEL_FIFO, GAVEL_LP = "gavel, fifo", "gavel, max_min_fairness_perf"
BARS_OF_PEERS = ((FIFO, IN_ORDER, 0.5), (FIFO, GAVEL_FIFO, 0.25), (ADAPTIVE, SHORTEST, 2.0))
"""Of two simulators, how many times as long the first may take."""
Run = dict[str, Any]
COLUMNS = "job_id user num_gpu num_cpu submit_time num_inst duration group group_dur group_gpu_dur"

ALIBABA = """
import json, sys, time
folder, trace, gpus, jobs, policy = sys.argv[1:]
sys.path.insert(0, folder)
from simulator import Simulator
made = Simulator(
    csv_file=trace, alloc_policy=int(policy), preempt_policy=2, sort_node_policy=3, num_nodes=1,
    num_spare_node=0, pattern=0, hetero=False, num_gpus=int(gpus), num_cpus=24 * int(gpus),
    arrival_rate=-1, num_jobs_limit=int(jobs), gpu_type_matching=0, max_time=10**9,
)
begin_s = time.process_time()
(done,) = made.simulator_go(repeat=1)
cpu_s = time.process_time() - begin_s
print(json.dumps({"cpu_s": round(cpu_s, 2), "jobs_ended": done[0], "makespan_s": done[3]}))
"""
OURS = """
import json, sys, time
sys.path.insert(0, sys.argv.pop(1))
from replay import scene_of
from reshape_controller.core.model import Mechanism
from reshape_controller.policies import make_policy
from reshape_controller.replay.generate import SIZES
from reshape_controller.replay.shell import replay
name, gpus, jobs, last_s, sizes = sys.argv[1:]
scene = scene_of(int(gpus), int(jobs), float(last_s), SIZES[: int(sizes)])
begin_s = time.process_time()
result = replay(scene, make_policy(name), Mechanism.SIDECAR)
cpu_s, makespan_s = time.process_time() - begin_s, result.metrics.makespan_s
ended = len(result.jobs)
print(json.dumps({"cpu_s": round(cpu_s, 2), "jobs_ended": ended, "makespan_s": makespan_s}))
"""
GAVEL = """
import csv, json, random, sys, time, types
folder, trace, gpus, round_s, policy = sys.argv[1:]
for name in ("matrix_completion", "runtime", "runtime.rpc", "runtime.rpc.scheduler_server",
             "runtime.rpc.scheduler_client"):  # what a simulation does not use
    sys.modules[name] = types.ModuleType(name)
sys.modules["runtime.rpc"].scheduler_server = sys.modules["runtime.rpc"].scheduler_client = None
sys.path[:0] = [folder, folder + "/policies"]
import scheduler, utils
figures = folder + "/simulation_throughputs.json"
speeds, draw = utils.read_all_throughputs_json_v2(figures), random.Random(0)
rows = list(csv.DictReader(open(trace)))
made = [
    utils.generate_job(speeds, rng=draw, fixed_job_duration=float(row["duration"]),
                       always_generate_scale_factor=False)
    for row in rows
]
planned = scheduler.Scheduler(
    utils.get_policy(policy, solver="ECOS", seed=0), throughputs_file=figures,
    simulate=True, seed=0, time_per_iteration=int(round_s),
)
half = int(gpus) // 2
begin_s = time.process_time()
planned.simulate({"v100": half, "p100": half, "k80": 0},
                 [float(row["submit_time"]) for row in rows], made,
                 num_gpus_per_server={"v100": 8, "p100": 8, "k80": 8})
cpu_s = time.process_time() - begin_s
print(json.dumps({"cpu_s": round(cpu_s, 2), "jobs_ended": len(rows)}), file=sys.__stderr__)
"""


def write_jobs(path: Path) -> None:
    """The jobs as Alibaba's simulator reads them, each on one GPU."""
    preset, scene = PRESETS["default"], scene_of(GPUS, JOBS, LAST_S, sizes=(1,))
    rows = replay(scene, make_policy(preset.policy), preset.mechanism).jobs
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS.split())
        for number, row in enumerate(rows):
            assert row.finished_s is not None
            assert row.launched_s is not None
            took_s = int(row.finished_s - row.launched_s)
            writer.writerow(
                [number, "u", 1, 1, int(row.submitted_s), 1, took_s, "g"] + [took_s] * 2
            )


def run(program: str, python: str, *given: object) -> Run:
    """Run one in a process of its own; what it says last."""
    command = [python, "-c", program, *map(str, given)]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    said = [line for line in lines if line.startswith('{"cpu_s')]
    if done.returncode or not said:
        raise SystemExit(f"{given}: {done.stderr[-2000:]}")
    found = json.loads(said[-1])
    assert isinstance(found, dict)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", default=sys.executable, help="that can import what they need")
    parser.add_argument("--alibaba", type=Path)
    parser.add_argument("--gavel", type=Path)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    file, head = given.out / "replay-peers.jsonl", git("rev-parse", "--short=12", "HEAD")
    lines = file.read_text().splitlines() if file.exists() else []
    runs = [run for run in map(json.loads, lines) if run["commit"] == head]
    with tempfile.TemporaryDirectory() as folder:
        jobs = Path(folder) / "jobs.csv"
        write_jobs(jobs)
        ours = (sys.executable, Path(__file__).resolve().parent)
        all_of: dict[str, Callable[[], Run]] = {
            FIFO: partial(run, OURS, *ours, "fifo", GPUS, JOBS, LAST_S, 1),
            ADAPTIVE: partial(run, OURS, *ours, "adaptive", GPUS, JOBS, LAST_S, 4),
        }
        if given.alibaba:
            own = (given.python, given.alibaba.resolve(), jobs, GPUS, JOBS)
            all_of[SHORTEST] = partial(run, ALIBABA, *own, 0)
            all_of[IN_ORDER] = partial(run, ALIBABA, *own, 8)
        if given.gavel:
            own = (given.python, given.gavel.resolve(), jobs, GPUS, ROUND_S)
            all_of[GAVEL_FIFO] = partial(run, GAVEL, *own, "fifo")
            all_of[GAVEL_LP] = partial(run, GAVEL, *own, "max_min_fairness_perf")
        for turn in range(given.turns):
            for name, start in all_of.items():
                if any((one["simulator"], one["turn"]) == (name, turn) for one in runs):
                    continue
                found = {"simulator": name, "turn": turn, "commit": head} | start()
                runs.append(found)
                with file.open("a") as log:
                    log.write(json.dumps(found) + "\n")
                print(json.dumps(found), flush=True)
    took = {name: [one["cpu_s"] for one in runs if one["simulator"] == name] for name in all_of}
    for name, times in took.items():
        print(f"{name:40} {median(times):7.2f} s ({min(times):.2f} to {max(times):.2f})")
    for own_name, theirs, most in BARS_OF_PEERS:
        if theirs in took:
            ratio = median(
                [now / then for now, then in zip(took[own_name], took[theirs], strict=True)]
            )
            word = "ok" if ratio <= most else "MISSED"
            print(f"{word:7} {own_name} over {theirs}: {ratio:.2f} of {most:g}")


if __name__ == "__main__":
    main()
