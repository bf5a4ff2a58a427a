"""Savings against termination beside the paper's, for two sets of sizes and two sets of costs.

    .venv/bin/python benchmarks/paper_distance.py [--seeds 10] [--workloads one,two,three,four]

Prints Markdown: by how much the mean completion time of ``adaptive`` is lower than that of
``termination``, as medians over seeds with 95 % intervals. The sizes are 1, 2, 4, 8 and 1 to 8; the
costs are the paper's and those measured with TensorFlow on two cores (``local``).

A second table has the parts of the distance: what the paper's printed overheads explain, and what
the decisions alone save (``adaptive`` against ``optimus+sidecar``, which has the same mechanism).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from reshape_controller.cli.replays import inputs
from reshape_controller.replay.paper import OURS, PRINTED, TERMINATION
from reshape_controller.replay.report import percent, spread, table
from reshape_controller.replay.rows import Interval, savings
from reshape_controller.replay.sweep import sweep, workers_for

SIZES = ("1,2,4,8", "1,2,3,4,5,6,7,8")
COSTS = ("paper", "local")
METRIC = "mean_jct_s"
SAME_MECHANISM = "optimus+sidecar"


def saving(
    request: inputs.ReplayRequest, other: str, seeds: Sequence[int], workers: int
) -> Interval | None:
    """Return by how much the mean completion time of ``adaptive`` is below that of ``other``."""
    contenders = [inputs.contender(label) for label in (OURS, other)]
    runs = sweep(inputs.setup_of(request), contenders, seeds, workers=workers)
    return savings([run.row for run in runs], OURS, other, (METRIC,)).get(METRIC)


def by_overheads(workload: str) -> float:
    """Return the saving that follows from the printed overheads: T of training takes
    T / (1 - overhead)."""
    printed = PRINTED[workload]
    return 1.0 - (1.0 - printed.overhead_termination) / (1.0 - printed.overhead)


def parts(names: Sequence[str], seeds: Sequence[int], workers: int) -> list[list[str]]:
    """Return the rows of the second table."""
    overheads = {name: by_overheads(name) for name in names}
    decisions = {}
    for name in names:
        request = inputs.ReplayRequest(name, costs=COSTS[0], sizes=SIZES[0])
        found = saving(request, SAME_MECHANISM, seeds, workers)
        decisions[name] = found.median if found is not None else 0.0
    both = {name: 1.0 - (1.0 - overheads[name]) * (1.0 - decisions[name]) for name in names}
    return [
        ["by the printed overheads of the two alone", *(percent(overheads[n]) for n in names)],
        ["by our decisions alone", *(percent(decisions[n]) for n in names)],
        ["both together", *(percent(both[n]) for n in names)],
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="10")
    parser.add_argument("--workloads", default="one,two,three,four")
    parser.add_argument("--workers", type=int)
    given = parser.parse_args()
    seeds, names = inputs.seeds_of(given.seeds), given.workloads.split(",")
    workers = workers_for(given.workers)
    printed = ["the paper", *(percent(PRINTED[name].mean_jct_below_termination) for name in names)]
    rows = [printed]
    for sizes in SIZES:
        for costs in COSTS:
            requests = [inputs.ReplayRequest(name, costs=costs, sizes=sizes) for name in names]
            found = [saving(request, TERMINATION, seeds, workers) for request in requests]
            rows.append([f"sizes {sizes}; costs `{costs}`", *(spread(each) for each in found)])
    print(table(["", *names], rows))
    print()
    print(table(["Lower by", *names], [printed, *parts(names, seeds, workers)]))


if __name__ == "__main__":
    main()
