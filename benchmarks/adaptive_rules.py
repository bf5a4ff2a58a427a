"""Costs and benefits of each rule of ``adaptive``, by replays of the paper's workloads.

    .venv/bin/python benchmarks/adaptive_rules.py [--seeds N] [--workloads one,two,three]

Prints, for each workload and setting, makespan and mean completion time relative to the policy
``paper`` under the same mechanism, as means over seeds. Step times differ from the profiles by a
factor of up to 15 % for each job; the profiles and costs are the bundled, mostly assumed ones.
"""

from __future__ import annotations

import argparse
import json

from reshape_controller.core.model import Mechanism
from reshape_controller.policies import make_policy
from reshape_controller.replay.generate import RECIPES, generate
from reshape_controller.replay.ground_truth import truth_of
from reshape_controller.replay.inputs import Costs, cluster_of
from reshape_controller.replay.shell import Scene, replay
from reshape_profiles.loader import bundled

SETTINGS = (
    "adaptive",
    "adaptive:gain=0",
    "adaptive:gain=0.02",
    "adaptive:gain=0.1",
    "adaptive:cool_down=0",
    "adaptive:cool_down=20",
    "adaptive:max_wait_s=600",
    "adaptive:max_wait_s=1000000",
)


def scene(workload: str, seed: int) -> Scene:
    """Return a workload of the paper in a world that differs a little from the profiles."""
    bundle, recipe = bundled(), RECIPES[workload]
    truth = truth_of(bundle.profiles, seed=seed)
    known = (*bundle.profiles, bundle.with_costs("paper"))
    costs = Costs("paper", dict(bundle.costs)["paper"])
    jobs = generate(recipe, bundle, truth, seed)
    return Scene(jobs, cluster_of(recipe.cluster), costs, known, truth)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seeds", type=int, default=10)
    arguments.add_argument("--workloads", default="one,two,three")
    options = arguments.parse_args()
    for workload in options.workloads.split(","):
        ratios: dict[str, list[tuple[float, float]]] = {name: [] for name in SETTINGS}
        for seed in range(options.seeds):
            given = scene(workload, seed)
            base = replay(given, make_policy("paper"), Mechanism.SIDECAR, seed=seed).metrics
            for name in SETTINGS:
                found = replay(given, make_policy(name), Mechanism.SIDECAR, seed=seed).metrics
                ratios[name].append(
                    (found.makespan_s / base.makespan_s, found.mean_jct_s / base.mean_jct_s)
                )
        for name, pairs in ratios.items():
            makespan, jct = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
            row = {"workload": workload, "policy": name, "seeds": options.seeds}
            print(json.dumps({**row, "makespan": round(makespan, 3), "mean_jct": round(jct, 3)}))


if __name__ == "__main__":
    main()
