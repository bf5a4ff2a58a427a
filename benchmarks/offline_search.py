"""A search for a shorter schedule with all arrivals known, beside the proven lower bound.

    .venv/bin/python benchmarks/offline_search.py [--workload one] [--seed 7] [--budget 200]

Replays ``adaptive`` again and again in the same world. Each time one job's allowed numbers of GPUs
are narrowed, or its priority changes, at random; a change that makes the makespan no longer stays.
The replay is otherwise as always, so every makespan it prints is attained by a schedule of the
workload, which only a search that knows all arrivals could have found. The bound holds for every
schedule. So the best schedule of all lies between the two, and ``adaptive`` above.

``--search-seed`` draws the changes, ``--budget`` is the number of replays. The first one changes
nothing. The same arguments give the same output.
"""

from __future__ import annotations

import argparse
import time

from reshape_controller.cli.replays import inputs
from reshape_controller.replay.bounds import makespan_bound_s
from reshape_controller.replay.offline_search import search
from reshape_controller.replay.report import table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", default="one")
    parser.add_argument("--cluster")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--policy", default="adaptive")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--budget", type=int, default=200)
    parser.add_argument("--search-seed", type=int, default=0)
    given = parser.parse_args()
    request = inputs.ReplayRequest(given.workload, cluster=given.cluster, jobs=given.jobs)
    scene, chosen = inputs.setup_of(request).scene(given.seed), inputs.contender(given.policy)
    began_s = time.process_time()
    found = search(
        scene,
        chosen,
        seed=given.seed,
        budget=given.budget,
        search_seed=given.search_seed,
    )
    took_s = time.process_time() - began_s
    bound_s = makespan_bound_s(scene)
    rows = [
        (given.policy, found.improved_at[0][1]),
        (f"the best of {given.budget} replays, all arrivals known", found.makespan_s),
        ("no schedule is shorter", bound_s),
    ]
    over = [[name, f"{text_s:,.0f} s", f"{text_s / bound_s - 1.0:.1%}"] for name, text_s in rows]
    print(table(["Makespan", "", "above the bound"], over))
    count, _ = found.improved_at[-1]
    print(f"\nthe last improvement at replay {count}; {took_s / given.budget:.2f} s of processor")
    print(f"time for each replay; {found.failed} replays failed, in which the policy makes a plan")
    print(f"that the engine refuses; workload {given.workload}, seed {given.seed}")


if __name__ == "__main__":
    main()
