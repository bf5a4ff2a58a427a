"""Savings against termination beside the paper's, for two sets of sizes and two sets of costs.

    .venv/bin/python benchmarks/paper_distance.py [--seeds 10] [--workloads one,two,three,four]

Prints Markdown: by how much the mean completion time of ``adaptive`` is lower than that of
``termination``, as medians over seeds with 95 % intervals. The sizes are 1, 2, 4, 8 and 1 to 8; the
costs are the paper's and those measured with TensorFlow on two cores (``local``).
"""

from __future__ import annotations

import argparse

from reshape_controller.cli.replays import inputs
from reshape_controller.replay.paper import OURS, PRINTED, TERMINATION
from reshape_controller.replay.report import percent, spread, table
from reshape_controller.replay.rows import savings
from reshape_controller.replay.sweep import sweep, workers_for

SIZES = ("1,2,4,8", "1,2,3,4,5,6,7,8")
COSTS = ("paper", "local")
METRIC = "mean_jct_s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="10")
    parser.add_argument("--workloads", default="one,two,three,four")
    parser.add_argument("--workers", type=int)
    given = parser.parse_args()
    seeds, names = inputs.seeds_of(given.seeds), given.workloads.split(",")
    contenders = [inputs.contender(label) for label in (OURS, TERMINATION)]
    rows = [["the paper", *(percent(PRINTED[name].mean_jct_below_termination) for name in names)]]
    for sizes in SIZES:
        for costs in COSTS:
            cells = [f"sizes {sizes}; costs `{costs}`"]
            for name in names:
                request = inputs.ReplayRequest(name, costs=costs, sizes=sizes)
                workers = workers_for(given.workers)
                runs = sweep(inputs.setup_of(request), contenders, seeds, workers=workers)
                saved = savings([run.row for run in runs], OURS, TERMINATION, (METRIC,))
                cells.append(spread(saved.get(METRIC)))
            rows.append(cells)
    print(table(["", *names], rows))


if __name__ == "__main__":
    main()
