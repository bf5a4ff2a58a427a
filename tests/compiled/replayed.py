"""Says everything that comes of some replays, line by line.

    python tests/compiled/replayed.py

Does: replays two workloads under every preset. Never: rounds a figure. State: none.
"""

from __future__ import annotations

from collections.abc import Iterator

from reshape_controller.core.explanation import explain_json
from reshape_controller.core.model import JobId
from reshape_controller.policies import PRESETS, make_policy
from reshape_controller.replay.generate import RECIPES
from reshape_controller.replay.inputs import Costs, cluster_of
from reshape_controller.replay.setup import Setup, curves_of
from reshape_controller.replay.shell import Result, replay
from reshape_profiles.loader import bundled
from reshape_sidecar import codec

WORKLOADS = (("one", "2*8xV100+2*8xP100", 60, 9_000.0), ("four", "8xV100+8xP100", 20, 4_000.0))
"""The second has accuracies as lengths, so curves are fitted."""


def lines(result: Result) -> Iterator[str]:
    """The history, the decisions and the course of a replay, its jobs and its figures."""
    names = {JobId(str(job.job)): str(job.job) for job in result.jobs}
    for entry in (*result.events, *result.course):
        yield codec.dumps(entry)
    for one in result.decisions:
        yield explain_json(one.plan, at_s=one.at_s, policy=result.policy, names=names)
    yield from map(repr, (*result.jobs, *result.reshapes, result.metrics, result.length_errors))


def main() -> None:
    """Print them all."""
    bundle = bundled()
    costs = Costs("paper", dict(bundle.costs)["paper"])
    for recipe, cluster, jobs, last_s in WORKLOADS:
        setup = Setup(
            bundle,
            cluster_of(cluster),
            costs,
            RECIPES[recipe],
            jobs=jobs,
            last_s=last_s,
            curves=curves_of(bundle.profiles),
        )
        for name, preset in PRESETS.items():
            print(recipe, name)
            policy = make_policy(preset.policy)
            for line in lines(replay(setup.scene(0), policy, preset.mechanism, seed=7, keep=True)):
                print(line)


if __name__ == "__main__":
    main()
