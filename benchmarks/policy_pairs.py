"""Policies against another one, seed by seed: means of pairs with 95 % intervals.

    .venv/bin/python benchmarks/policy_pairs.py [--policies A,B] [--against adaptive-v1]
        [--seeds 0-19] [--workloads one,two,three,four] [--loads 1,0.8,1.3] [--costs paper]
        [--workers N]

Prints, for each workload and load (how many times as fast the same jobs arrive), the change of
makespan, mean completion time and its 95th percentile in per cent, and worst slowdown (completion
time over the time alone at the best size), longest wait and reshapes per job as means of both.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
from collections.abc import Sequence
from itertools import product
from statistics import fmean, stdev
from typing import NamedTuple

from reshape_controller.cli.replays import inputs
from reshape_controller.replay.fairness import fairness
from reshape_controller.replay.shell import replay

T_95 = {3: 4.303, 5: 2.776, 10: 2.262, 20: 2.093, 30: 2.045}
"""Student's t for the 95 % interval of a mean, by the number of pairs."""


class Run(NamedTuple):
    """A replay: workload, load, seed, policy and costs."""

    workload: str
    load: float
    seed: int
    policy: str
    costs: str


class Figures(NamedTuple):
    """The figures of a replay."""

    makespan_s: float
    mean_jct_s: float
    p95_jct_s: float
    worst_slowdown: float
    longest_wait_s: float
    reshapes_per_job: float


def measured(run: Run) -> tuple[Run, Figures]:
    """Replay, and return the figures."""
    request = inputs.ReplayRequest(run.workload, costs=run.costs, load=run.load)
    scene, contender = inputs.setup_of(request).scene(run.seed), inputs.contender(run.policy)
    result = replay(scene, contender.policy, contender.mechanism, seed=run.seed)
    metrics, even = result.metrics, fairness(scene, result.jobs)
    own = {name: even[name] for name in Figures._fields[3:]}
    return run, Figures(metrics.makespan_s, metrics.mean_jct_s, metrics.p95_jct_s, **own)


def change(ours: Sequence[float], base: Sequence[float]) -> str:
    """Return the mean change over pairs with its 95 % interval, in per cent."""
    changes = [100.0 * (a / b - 1.0) for a, b in zip(ours, base, strict=True)]
    if len(changes) < 2:
        return f"{changes[0]:+6.1f}"
    half = T_95.get(len(changes), 2.1) * stdev(changes) / math.sqrt(len(changes))
    return f"{fmean(changes):+6.1f} +- {half:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", default="adaptive")
    parser.add_argument("--against", default="adaptive-v1")
    parser.add_argument("--seeds", default="0-19")
    parser.add_argument("--workloads", default="one,two,three,four")
    parser.add_argument("--loads", default="1")
    parser.add_argument("--costs", default="paper")
    parser.add_argument("--workers", type=int)
    given = parser.parse_args()
    seeds, policies = inputs.seeds_of(given.seeds), inputs.labels_of(given.policies)
    loads = [float(load) for load in given.loads.split(",")]
    places = list(product(given.workloads.split(","), loads))
    runs = [
        Run(*place, seed, policy, given.costs)
        for place in places
        for seed in seeds
        for policy in (given.against, *policies)
    ]
    with multiprocessing.get_context("spawn").Pool(given.workers) as pool:
        found = dict(pool.imap_unordered(measured, runs, chunksize=4))
    for policy, (workload, load) in product(policies, places):
        ours, base = (
            list(
                zip(*[found[Run(workload, load, s, name, given.costs)] for s in seeds], strict=True)
            )
            for name in (policy, given.against)
        )
        changes = ", ".join(
            f"{name} {change(a, b)} %"
            for name, a, b in zip(("makespan", "mean", "p95"), ours[:3], base[:3], strict=True)
        )
        means = ", ".join(
            f"{name} {fmean(b):.2f} to {fmean(a):.2f}"
            for name, a, b in zip(Figures._fields[3:], ours[3:], base[3:], strict=True)
        )
        print(f"{policy} {workload} load {load:g}: {changes}; {means}", flush=True)


if __name__ == "__main__":
    main()
