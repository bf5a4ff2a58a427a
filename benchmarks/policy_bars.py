"""The bars for the speed of every policy, in one run of turns that goes on where it was ended.

    .venv/bin/python benchmarks/policy_bars.py [--base COMMIT] [--turns 3] [--parts NAME ...]
        [--policies NAME ...]

Parts, each in processes of their own, in turns with the base where the bar is a ratio:

``replays``    2,500 jobs on 1,024 GPUs under each policy, over ``fifo`` of the base, and the growth
               exponent from 160 to 2,500 jobs with GPUs in proportion;
``adaptive``   ``adaptive`` on 64 GPUs x 1,500 jobs and 1,024 x 2,500, over ``--before``;
``decisions``  one decision with 10,000 running and 1,000 queued jobs, cold; ``adaptive`` also warm;
``memory``     peak of a process that replays 20,000 jobs on 10,000 GPUs, or the first 3,000.

Prints a line for each bar. Appends each measurement to ``out/bench/policy-bars.jsonl``: another
call on the same commits measures what is missing. A tree with changes counts as its last commit, so
commit first. Times are processor seconds. Each ratio is the median over the turns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import log
from pathlib import Path
from statistics import median

from replay_ratio import PACKAGES, ROOT, git

from reshape_controller.policies import BUILT_IN

BASE = "896e75bb"
"""The commit whose ``fifo`` is the measure of all policies."""
BEFORE = "b3fa5fce"
"""The commit whose ``adaptive`` is the measure of ``adaptive``."""
LABELS = (*BUILT_IN, "termination")
"""All policies inside running containers, and the preset that restarts jobs."""
RATIO_MAX = dict.fromkeys(LABELS, 12.0) | {
    "termination": 3.0, "default": 1.6, "ffdl": 1.6, "tiresias": 1.6,
}  # fmt: skip
SIZES = ((64, 160, 11_000.0), (256, 640, 11_000.0), (1024, 2500, 11_000.0))
"""GPUs, jobs and the last arrival, for the growth; the last one is that of the bars."""
STEADY = (64, 1500, 240_000.0)
LARGE = (10_000, 20_000, 9_000.0)
LARGE_PART = (10_000, 3_000, 1_350.0)
"""The first jobs of ``LARGE``, at the same rate."""
WHOLE = ("fifo", "default", "ffdl", "tiresias")
"""Policies that replay ``LARGE`` whole."""
COLD_MAX_MS, WARM_MAX_MS, MEMORY_MAX_MB, BEFORE_MAX = 300.0, 25.0, 150.0, 0.75
DECISION_REPEATS = 20

REPLAY = """
import json, sys, time
from replay import peak_rss_mb, scene_of
from reshape_controller.core.model import Mechanism
from reshape_controller.policies import PRESETS, make_policy
from reshape_controller.replay.shell import replay
label, gpus, jobs, last_s = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
preset = PRESETS.get(label)
policy = make_policy(preset.policy if preset else label)
mechanism = preset.mechanism if preset else Mechanism.SIDECAR
scene = scene_of(gpus, jobs, last_s)
begin_s = time.process_time()
replay(scene, policy, mechanism)
print(json.dumps({"cpu_s": time.process_time() - begin_s, "peak_mb": peak_rss_mb()}))
"""
DECISION = """
import json, sys
import decision_latency
from reshape_controller.policies import make_policy
label, repeats, again = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "warm"
row = decision_latency.measured(
    make_policy(label), repeats, lambda seed: decision_latency.snapshot(10_000, 1_000, seed),
    again=again,
)
print(json.dumps(row["cpu_ms"]))
"""

Row = dict[str, float]


@dataclass(frozen=True)
class Bench:
    """The trees, and the measurements so far."""

    head: str
    """The commit that is measured."""
    trees: dict[str, Path]
    file: Path
    known: dict[str, Row]
    labels: tuple[str, ...] = LABELS
    """The policies that are measured."""

    def measure(self, tree: str, turn: int, program: str, *words: object) -> Row:
        """Return what a program prints on a tree in this turn; it runs if that is not known."""
        kind = "decision" if program is DECISION else "replay"
        key = " ".join(map(str, (self.head, tree, turn, kind, *words)))
        if key not in self.known:
            folder = self.trees[tree]
            path = ":".join(str(folder / package) for package in PACKAGES)
            environ = os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": "0"}
            command = (sys.executable, "-c", program, *map(str, words))
            done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
            self.known[key] = json.loads(done.stdout)
            with self.file.open("a") as log_file:
                log_file.write(json.dumps({key: self.known[key]}) + "\n")
        return self.known[key]


def say(bar: str, value: float, most: float, unit: str = "", more: str = "") -> None:
    """Print a bar: what was measured, and what it may be at most."""
    word = "ok" if value <= most else "MISSED"
    print(f"{word:7} {bar:52} {value:8.2f}{unit} of {most:g}{unit}{more}", flush=True)


def replays(bench: Bench, base: str, turns: int) -> None:
    """Measure all policies over ``fifo`` of the base."""
    took: dict[tuple[str, int], list[float]] = {}
    ratios: dict[str, list[float]] = {}
    for turn in range(turns):
        for label in bench.labels:
            beside = (*SIZES[-1], f"beside {label}")  # each has its own, for a load comes and goes
            measure = bench.measure(base, turn, REPLAY, "fifo", *beside)["cpu_s"]
            for number, size in reversed(list(enumerate(SIZES))):
                cpu_s = bench.measure("tree", turn, REPLAY, label, *size)["cpu_s"]
                took.setdefault((label, number), []).append(cpu_s)
            ratios.setdefault(label, []).append(took[label, len(SIZES) - 1][-1] / measure)
    for label in bench.labels:
        first, last = median(took[label, 0]), median(took[label, len(SIZES) - 1])
        exponent = log(last / first) / log(SIZES[-1][1] / SIZES[0][1])
        more = f"; {last:.2f} s, exponent {exponent:.2f}"
        bar = f"{label}, 1,024 GPUs x 2,500 jobs, over fifo of {base}"
        say(bar, median(ratios[label]), RATIO_MAX[label], more=more)


def adaptive(bench: Bench, before: str, turns: int) -> None:
    """Measure ``adaptive`` over that of an earlier commit."""
    for size in (STEADY, SIZES[-1]):
        ratios = []
        for turn in range(turns):
            order = ("tree", before) if turn % 2 else (before, "tree")
            took = {
                tree: bench.measure(tree, turn, REPLAY, "adaptive", *size)["cpu_s"]
                for tree in order
            }
            ratios.append(took["tree"] / took[before])
        bar = f"adaptive, {size[0]:,} GPUs x {size[1]:,} jobs, over {before}"
        say(bar, median(ratios), BEFORE_MAX)


def decisions(bench: Bench) -> None:
    """Measure one decision on a large cluster."""
    for label in [label for label in bench.labels if label in BUILT_IN]:
        for kind, most in (("cold", COLD_MAX_MS), ("warm", WARM_MAX_MS)):
            if kind == "warm" and label != "adaptive":
                continue
            row = bench.measure("tree", 0, DECISION, label, DECISION_REPEATS, kind)
            say(f"{label}, a {kind} decision, p99", row["p99"], most, " ms")


def memory(bench: Bench) -> None:
    """Measure the peak of the process."""
    for label in bench.labels:
        size = LARGE if label in WHOLE else LARGE_PART
        row = bench.measure("tree", 0, REPLAY, label, *size)
        bar = f"{label}, {size[0]:,} GPUs x {size[1]:,} jobs"
        say(bar, row["peak_mb"], MEMORY_MAX_MB, " MB", f"; {row['cpu_s']:.0f} s")


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """A temporary work tree of a commit."""
    with tempfile.TemporaryDirectory(prefix="reshape-bars-") as folder:
        tree = Path(folder) / "base"
        git("worktree", "add", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            git("worktree", "remove", "--force", str(tree))


PARTS = ("replays", "adaptive", "decisions", "memory")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", default=BASE)
    parser.add_argument("--before", default=BEFORE)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--policies", nargs="+", choices=LABELS, default=LABELS)
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    file, head = given.out / "policy-bars.jsonl", git("rev-parse", "--short=12", "HEAD")
    known: dict[str, Row] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        known |= json.loads(line)
    with ExitStack() as stack:
        trees = {"tree": ROOT}
        for part, commit in (("replays", given.base), ("adaptive", given.before)):
            if part in given.parts and commit not in trees:
                trees[commit] = stack.enter_context(checked_out(commit))
        bench = Bench(head, trees, file, known, tuple(given.policies))
        if "replays" in given.parts:
            replays(bench, given.base, given.turns)
        if "adaptive" in given.parts:
            adaptive(bench, given.before, given.turns)
        if "decisions" in given.parts:
            decisions(bench)
        if "memory" in given.parts:
            memory(bench)


if __name__ == "__main__":
    main()
