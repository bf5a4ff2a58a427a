"""``python -m tests.support.rank_stops --stops 200``: stops of a group of ranks at random times.

Does: trains a stand-in without PyTorch on some ranks, asks it to stop during its start, its first
step, an evaluation, a save or anywhere, starts it again, and checks that each rank makes each step
once. Prints a line of JSON and fails at the first stop that hangs or loses a step.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from reshape_sidecar.wire import EXIT_SAVED, SIGNAL_BASE
from tests.support.rank_runs import RankRun

PROGRAM = """
import os, sys, time, types
from pathlib import Path

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
group = types.SimpleNamespace(is_initialized=lambda: True, get_world_size=lambda: ranks)
sys.modules["torch.distributed"] = group
from reshape_sidecar import session

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def meet(place):
    Path(f"met-{generation}-{rank}-{place}").touch()
    while not all(Path(f"met-{generation}-{other}-{place}").exists() for other in range(ranks)):
        time.sleep(0.001)

def save(folder):
    say("saves")
    time.sleep(0.03)
    (folder / "state").write_text(str(job.step))

generation = os.environ["RESHAPE_GENERATION"]
job = session.start(total_steps=int(sys.argv[1]))
Path(f"ready-{generation}").touch()
first = job.step
while job.step < job.total_steps:
    meet(job.step)
    if job.step == first:
        say("first step")
        time.sleep(0.05)
    time.sleep(0.002 * (rank + 1))
    say("rank", rank, "step", job.step + 1)
    job.step_done(save)
    if job.step % 8 == 0:
        say("evaluates")
        time.sleep(0.03)
    if job.step % 12 == 0:
        job.save(save)
job.finished(save)
"""
"""Joins no process group, but has the others' steps to wait for, as in a collective."""
STEPS = 100_000
ENDED = (EXIT_SAVED, SIGNAL_BASE + signal.SIGTERM, -signal.SIGTERM)
"""Saved, or ended by the signal before it had begun: a rank, or the parent before its handlers."""


class Moment(StrEnum):
    """When a stop is asked."""

    START = "start"
    FIRST_STEP = "first step"
    EVALUATION = "evaluates"
    SAVE = "saves"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class RankStop:
    """One stop of a group."""

    moment: Moment
    code: int
    took_s: float
    """From the request to the end of the last rank."""
    steps: int
    """Steps of the start that it ended."""


class StopCampaign:
    """A chain of starts in one folder: each goes on from the checkpoint of the one before."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self._folder, self._dice = folder, dice
        self._generation = self._saved = 0
        (folder / "train.py").write_text(PROGRAM)

    def stops(self, count: int) -> Iterator[RankStop]:
        """Yield the stops. Raises AssertionError at the first that loses a step or hangs."""
        for number in range(count):
            moment = list(Moment)[number % len(Moment)]
            yield self._stop(moment, ranks=self._dice.choice((1, 2, 3)))

    def _stop(self, moment: Moment, ranks: int) -> RankStop:
        self._generation += 1
        command = (sys.executable, "train.py", str(STEPS))
        run = RankRun(self._folder, command, ranks, generation=self._generation)
        try:
            if moment is Moment.ANY:
                run.prints(Moment.FIRST_STEP)
            elif moment is not Moment.START:
                run.prints(moment)
            time.sleep(self._dice.uniform(0, 0.3 if moment in (Moment.START, Moment.ANY) else 0.05))
            asked_s = time.monotonic()
            run.stop()
            code = run.ends()
            took_s = time.monotonic() - asked_s
            made = self._check(run, ranks, code)
            return RankStop(moment, code, took_s, made)
        finally:
            run.kill()
            run.log.unlink()

    def _check(self, run: RankRun, ranks: int, code: int) -> int:
        """Return the steps of a start, which each rank made once and rank 0 saved."""
        assert code in ENDED, f"exit code {code}\n{run.text}"
        saved = run.saved_step() or 0
        wanted = [*range(self._saved + 1, saved + 1)]
        assert wanted or saved == self._saved, f"saved at {saved} after {self._saved}"
        for rank in range(ranks):
            made = [int(step) for step in re.findall(rf"rank {rank} step (\d+)", run.text)]
            assert made == wanted, f"rank {rank} made {made}, and {wanted} is saved\n{run.text}"
        self._saved = saved
        for path in self._folder.glob("met-*"):
            path.unlink()
        return len(wanted)


def main() -> None:
    """Run the campaign that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stops", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="reshape-stops-") as name:
        found = list(StopCampaign(Path(name), random.Random(asked.seed)).stops(asked.stops))
    took = sorted(stop.took_s for stop in found)
    result = {
        "stops": len(found),
        "moments": Counter(stop.moment for stop in found),
        "codes": Counter(stop.code for stop in found),
        "steps": sum(stop.steps for stop in found),
        "median_s": round(took[len(took) // 2], 3),
        "longest_s": round(took[-1], 3),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
