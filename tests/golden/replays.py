"""Hashes of replays: what is decided, commanded and measured, and when, in no one's words.

    python -m tests.golden.replays check|write [--all]

Does: replays workloads one to four under the policies whose decisions stay, with 30 seeds, and
compares each with its line in ``replays.txt``, or writes that file. A hash is over plain figures,
names and tags: targets, commands, times, the rows of the jobs and the metrics. Never: hashes a
sentence, or the name of a class. State: ``replays.txt``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from itertools import product
from pathlib import Path

from reshape_controller.cli.replays.inputs import ReplayRequest, contender, setup_of
from reshape_controller.core.engine import Step
from reshape_controller.core.events import Event
from reshape_controller.core.plan import Target
from reshape_controller.replay.paper import WORKLOADS
from reshape_controller.replay.shell import Result, Shell
from reshape_controller.scheduling.rounds import Round
from reshape_sidecar import codec

FILE = Path(__file__).with_name("replays.txt")
POLICIES = "adaptive-v1,paper,termination,default,adaptive-v1+terminate,optimus+sidecar"
"""Policies whose decisions stay."""
SEEDS = 30
SUBSET_SEEDS = 3
"""Of each workload under each policy, checked at every change."""
Replay = tuple[str, str, int]
"""Workload, policy and seed."""


class Hashed(Shell):
    """A replay that hashes each step with commands and each plan with targets, as they come."""

    digest: hashlib._Hash

    def round(self, events: Sequence[Event], now_s: float) -> Round:
        done = super().round(events, now_s)
        for step in done.steps:
            self._hash_commands(step)
        for decision in done.decisions:
            if decision.plan.targets:
                targets = [_values(target) for target in decision.plan.targets]
                self._hash(json.dumps(targets))
            self._hash_commands(decision.step)
        return done

    def _hash_commands(self, step: Step) -> None:
        if step.commands:
            self._hash(codec.dumps(step.commands))

    def _hash(self, text: str) -> None:
        self.digest.update(f"{self.engine.state.now_s!r} {text}\n".encode())


def _values(target: Target) -> tuple[object, ...]:
    """The values of a target; a release before had no shares, so none of one host are hashed."""
    *values, shares = astuple(target)
    return (*values, shares) if shares else tuple(values)


def replays_of(seeds: int) -> Iterator[Replay]:
    """The replays of the first seeds, in the order of the file."""
    return product(WORKLOADS, POLICIES.split(","), range(seeds))


def hash_of(workload: str, label: str, seed: int) -> str:
    """Replay, and hash it."""
    found = contender(label)
    scene = setup_of(ReplayRequest(workload)).scene(seed)
    run = Hashed(scene, found.policy, found.mechanism, seed)
    digest = run.digest = hashlib.sha256()
    run.run()
    for line in outcome(run.result()):
        digest.update(f"{line}\n".encode())
    return digest.hexdigest()


def outcome(result: Result) -> Iterator[str]:
    """Figures of the jobs, the reshapes and the whole."""
    tuples = [*map(astuple, result.jobs), *map(astuple, result.reshapes), astuple(result.metrics)]
    yield from map(json.dumps, tuples)
    yield json.dumps([result.length_errors, result.pending, result.engine_events])


def committed() -> dict[Replay, str]:
    """The hashes in the file."""
    found = {}
    for line in FILE.read_text().splitlines():
        workload, label, seed, digest = line.split()
        found[workload, label, int(seed)] = digest
    return found


def _hashed(replay: Replay) -> tuple[Replay, str]:
    return replay, hash_of(*replay)


def main() -> int:
    """Check or write; 1 if a replay differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.replays", description=__doc__)
    parser.add_argument("what", choices=("check", "write"))
    parser.add_argument("--all", action="store_true", help=f"all {SEEDS} seeds (write always is)")
    asked = parser.parse_args()
    whole = asked.all or asked.what == "write"
    replays = list(replays_of(SEEDS if whole else SUBSET_SEEDS))
    with multiprocessing.get_context("spawn").Pool() as pool:
        found = dict(pool.imap_unordered(_hashed, replays, chunksize=4))
    if asked.what == "write":
        lines = [
            f"{workload} {label} {seed} {found[workload, label, seed]}"
            for workload, label, seed in replays
        ]
        FILE.write_text("".join(f"{line}\n" for line in lines))
        return 0
    wanted = committed()
    differing = [replay for replay in replays if found[replay] != wanted.get(replay)]
    for replay in differing:
        print("differs:", *replay)
    print(f"{len(replays)} replays, {len(differing)} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
