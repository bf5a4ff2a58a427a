"""Two inputs on eight V100 that show what a higher priority is worth, as trace files with the
profiles and costs of the paper.

Does: P has elastic jobs, which shrink for ``high``; V has rigid ones, which are preempted.
"""

from __future__ import annotations

from functools import cache

from reshape_controller.replay import traces
from reshape_controller.replay.ground_truth import truth_of
from reshape_controller.replay.inputs import Costs, cluster_of
from reshape_controller.replay.shell import Scene
from reshape_profiles.loader import bundled

HEAD = "name,submit_s,job_type,optional_gpus,steps,priority\n"
KIND = "resnet18-b256-imagenet"


@cache
def input_p() -> Scene:
    """Four jobs of sizes 1, 2 and 4, and after 2,000 s ``high``, which needs four GPUs."""
    rows = [f"low-{n},0,{KIND},1 2 4,60000,0\n" for n in range(1, 5)]
    return _scene("p", [*rows, f"high,2000,{KIND},4 8,6000,100\n"])


@cache
def input_v() -> Scene:
    """Eight jobs of one GPU, and after 100 s ``high``, which needs one GPU."""
    rows = [f"low-{n},0,{KIND},1,60000,0\n" for n in range(1, 9)]
    return _scene("v", [*rows, f"high,100,{KIND},1,600,100\n"])


def _scene(name: str, rows: list[str]) -> Scene:
    bundle = bundled()
    workload = traces.parse(HEAD + "".join(rows), name, [KIND], jsonl=False)
    costs = Costs("paper", dict(bundle.costs)["paper"])
    truth = truth_of(bundle.profiles, seed=0, spread=0.15)
    return Scene(workload, cluster_of("8xV100"), costs, bundle.profiles, truth)
