"""Time of replays and of a cold decision as a ratio to an earlier commit, taken in turns.

    .venv/bin/python benchmarks/replay_ratio.py COMMIT [--turns 9] [--rows NAME ...] [--out FOLDER]

Checks COMMIT out into a temporary git worktree. Each turn runs every row once with each of the two
trees, in alternating order, each in a process of its own. Prints, for each row, the median ratio of
processor time (this tree over COMMIT) with the order-statistics interval that holds the true median
with a probability of at least 95 %. Appends each pair to ``out/bench/replay-ratio.jsonl`` and
continues from there: another call with the same commits adds the missing turns. A tree with changes
counts as its last commit, so commit first.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from reshape_controller.replay.rows import interval

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("controller", "sidecar", "launcher", "profiles", "benchmarks")
REPLAY = "import json, replay; print(json.dumps(replay.one('adaptive', {}, 600.0)))"
COLD = "import json, replay; print(json.dumps(replay.cold('adaptive', 1024, 2000, 100.0)))"
ROWS = {
    "16x40": (REPLAY.format("16, 40, 11000.0"), "cpu_s"),
    "64x160": (REPLAY.format("64, 160, 11000.0"), "cpu_s"),
    "64x1500-steady": (REPLAY.format("64, 1500, 240000.0"), "cpu_s"),
    "1024x2500": (REPLAY.format("1024, 2500, 11000.0"), "cpu_s"),
    "1024x10000": (REPLAY.format("1024, 10000, 44000.0"), "cpu_s"),
    "cold-1024x2000": (COLD, "decision_cpu_p50_ms"),
}
"""Program of a row, and the name of its processor time in the result."""

Pair = tuple[float, float]


def git(*words: str) -> str:
    return subprocess.run(
        ("git", "-C", str(ROOT), *words), capture_output=True, text=True, check=True
    ).stdout.strip()


def measure(tree: Path, row: str) -> float:
    """Return the processor time of one run of a row with the packages of a tree."""
    program, name = ROWS[row]
    env = os.environ | {"PYTHONPATH": ":".join(str(tree / package) for package in PACKAGES)}
    command = (sys.executable, "-c", program)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)[name])


def take_turns(base: Path, rows: list[str], turns: int, file: Path, key: str) -> None:
    """Append the missing pairs of each row, and print each row's ratio."""
    pairs: dict[str, list[Pair]] = {row: [] for row in rows}
    for line in file.read_text().splitlines() if file.exists() else ():
        row, commits, *times = json.loads(line)
        if commits == key and row in pairs:
            pairs[row].append((times[0], times[1]))
    for turn in range(turns):
        for row in rows:
            if len(pairs[row]) > turn:
                continue
            trees = [(0, ROOT), (1, base)]
            took = [0.0, 0.0]
            for place, tree in trees if turn % 2 == 0 else trees[::-1]:
                took[place] = measure(tree, row)
            pairs[row].append((took[0], took[1]))
            with file.open("a") as log:
                log.write(json.dumps([row, key, *took]) + "\n")
    for row in rows:
        ratio = interval([now / before for now, before in pairs[row]])
        now, before = (median(times) for times in zip(*pairs[row], strict=True))
        print(
            f"{row:16} {ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f}), "
            f"{len(pairs[row])} pairs; medians {now:.3f} and {before:.3f} ({ROWS[row][1]})"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("commit")
    parser.add_argument("--turns", type=int, default=9)
    gated = [row for row in ROWS if row != "1024x10000"]
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=gated)
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    key = f"{git('rev-parse', '--short=12', 'HEAD')}/{git('rev-parse', '--short=12', given.commit)}"
    with tempfile.TemporaryDirectory(prefix="reshape-ratio-") as folder:
        base = Path(folder) / "base"
        git("worktree", "add", "--detach", str(base), given.commit)
        try:
            take_turns(base, given.rows, given.turns, given.out / "replay-ratio.jsonl", key)
        finally:
            git("worktree", "remove", "--force", str(base))


if __name__ == "__main__":
    main()
