"""How long other simulators take for the jobs of the largest bar, in turn with a replay.

    python benchmarks/replay_peers.py --python PYTHON [--alibaba FOLDER] [--gavel FOLDER]

``FOLDER`` is ``cluster-trace-gpu-v2020/simulator`` of alibaba/clusterdata, or ``scheduler`` of
stanford-futuredata/gavel, as you got them; nothing of either is here. ``PYTHON`` can import what
they need: numpy and matplotlib, cvxpy with ecos and psutil.

Each gets 10,000 jobs in 44,000 s on 1,024 GPUs that take one GPU each and last as long as in a
replay of job set one at size one: about as much work as the cluster can do. Alibaba's simulator
starts them shortest first, or in order, on one host with all GPUs; it places and reshapes nothing.
Gavel's assigns GPU types by a linear program for each round of 360 s; its jobs are of its own
types, as long on its V100. Ours is ``benchmarks/replay.py --one adaptive 1024 10000 44000``, which
chooses among sizes 1, 2, 4 and 8. All are timed without imports, the drawing of the workload and
the reading of files. It prints one JSON line for each.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from replay import BARS, apart, scene_of

from reshape_controller.policies import PRESETS, make_policy
from reshape_controller.replay.shell import replay

GPUS, JOBS, LAST_S, _, LIMIT_S = BARS[2]
ROUND_S = 360
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
begin_s = time.perf_counter()
(done,) = made.simulator_go(repeat=1)
wall_s = time.perf_counter() - begin_s
print(json.dumps({"wall_s": round(wall_s, 2), "jobs_ended": done[0], "makespan_s": done[3]}))
"""
GAVEL = """
import csv, json, random, sys, time, types
folder, trace, gpus, round_s = sys.argv[1:]
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
    utils.get_policy("max_min_fairness_perf", solver="ECOS", seed=0), throughputs_file=figures,
    simulate=True, seed=0, time_per_iteration=int(round_s),
)
half = int(gpus) // 2
begin_s = time.perf_counter()
planned.simulate({"v100": half, "p100": half, "k80": 0},
                 [float(row["submit_time"]) for row in rows], made,
                 num_gpus_per_server={"v100": 8, "p100": 8, "k80": 8})
wall_s = time.perf_counter() - begin_s
print(json.dumps({"wall_s": round(wall_s, 2), "jobs_ended": len(rows)}), file=sys.__stderr__)
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


def peer(name: str, program: str, python: str, *given: object) -> None:
    """Run one in a process of its own, and print what it says last."""
    command = [python, "-c", program, *map(str, given)]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    said = [
        line for line in (done.stdout + done.stderr).splitlines() if line.startswith('{"wall_s')
    ]
    if done.returncode or not said:
        raise SystemExit(f"{name}: {done.stderr[-2000:]}")
    print(json.dumps({"simulator": name, "gpus": GPUS} | json.loads(said[-1])), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", default=sys.executable, help="that can import what they need")
    parser.add_argument("--alibaba", type=Path)
    parser.add_argument("--gavel", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        jobs = Path(folder) / "jobs.csv"
        write_jobs(jobs)
        if given.alibaba:
            own = (given.alibaba.resolve(), jobs, GPUS, JOBS)
            peer("alibaba, shortest first", ALIBABA, given.python, *own, 0)
            peer("alibaba, in order", ALIBABA, given.python, *own, 8)
        if given.gavel:
            own = (given.gavel.resolve(), jobs, GPUS, ROUND_S)
            peer("gavel, max_min_fairness_perf", GAVEL, given.python, *own)
    row = apart("adaptive", GPUS, JOBS, LAST_S, LIMIT_S)
    kept = {name: row[name] for name in ("wall_s", "jobs_ended", "makespan_s")}
    print(json.dumps({"simulator": "reshape, adaptive", "gpus": GPUS} | kept))


if __name__ == "__main__":
    main()
