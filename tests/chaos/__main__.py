"""Random faults on real daemons and jobs: ``python -m tests.chaos FAULTS``.

Plays rounds of 20 faults each, of the seeds from ``--from``, until there were so many faults. A
round that finds a violation prints what happened, and the command that repeats it. Exit code 1 if
there was one.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections import Counter
from multiprocessing import Pool
from pathlib import Path

from tests.chaos.faults import FAULTS
from tests.chaos.play import Round, play

FAULTS_PER_ROUND = 20


def _end(*_: object) -> None:
    raise KeyboardInterrupt


def _begin_worker() -> None:
    """Have a signal end a round as an error does: nothing of it is left behind."""
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command ends its workers itself


def play_task(task: tuple[int, int, tuple[str, ...]]) -> Round:
    """Play a round in an empty folder."""
    seed, count, allowed = task
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        return play(Path(folder), seed, count, allowed)


def campaign(
    total: int, first: int, workers: int, allowed: tuple[str, ...] = (), *, stop: bool = False
) -> list[Round]:
    """Play rounds from seed ``first`` until there were ``total`` faults; return them.

    ``stop``: after the first round with a violation.
    """
    tasks = [
        (first + number, min(FAULTS_PER_ROUND, total - begin), allowed)
        for number, begin in enumerate(range(0, total, FAULTS_PER_ROUND))
    ]
    rounds = []
    with Pool(workers, _begin_worker, maxtasksperchild=10) as pool:
        for each in pool.imap(play_task, tasks):
            rounds.append(each)
            print(_line(each), flush=True)
            if each.violations:
                count = sum(each.faults.values())
                only = f" --only {','.join(allowed)}" if allowed else ""
                print(*each.trace, sep="\n")
                repeat = f"python -m tests.chaos {count} --from {each.seed}{only}"
                print(f"repeat it: {repeat}", flush=True)
                if stop:
                    break
    return rounds


def _line(each: Round) -> str:
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(each.faults.items()))
    return (
        f"seed {each.seed}: {len(each.violations)} violations; {each.jobs} jobs, "
        f"{each.hand_overs} grants, {each.reshapes} reshapes, {each.starts} starts, "
        f"{each.looks} looks (longest pause {each.longest_s:.2f} s), {each.took_s:.0f} s; {kinds}"
    )


def summary(rounds: list[Round]) -> str:
    """Return the figures of all rounds, with the bound on the rate of violations."""
    kinds = sum((each.faults for each in rounds), Counter[str]())
    total, bad = kinds.total(), sum(bool(each.violations) for each in rounds)
    moved = sum(each.reshapes > 0 for each in rounds)
    bound = f"bound {300 / total:.2g} %" if total and not bad else "no bound"
    parts = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
    return (
        f"{total} faults in {len(rounds)} rounds, {bad} rounds with violations, {bound}; "
        f"{sum(each.jobs for each in rounds)} jobs, {sum(each.hand_overs for each in rounds)} "
        f"grants, {sum(each.reshapes for each in rounds)} reshapes (in {moved} rounds), "
        f"{sum(each.starts for each in rounds)} starts, {sum(each.looks for each in rounds)} "
        f"looks\n{parts}\ncontainment: {', '.join(sorted({each.containment for each in rounds}))}; "
        f"longest pause between two looks {max(each.longest_s for each in rounds):.2f} s"
    )


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser("python -m tests.chaos", description=__doc__)
    parser.add_argument("faults", type=int, help="number of faults")
    parser.add_argument("--from", dest="first", type=int, default=0, help="first seed")
    parser.add_argument("--workers", type=int, default=1, help="rounds at a time")
    parser.add_argument("--only", default="", help="kinds of faults, with commas")
    parser.add_argument("--stop", action="store_true", help="end at the first violation")
    options = parser.parse_args()
    allowed = tuple(filter(None, options.only.split(",")))
    if unknown := set(allowed) - set(FAULTS):
        parser.error(f"--only {', '.join(sorted(unknown))}: use some of {', '.join(FAULTS)}")
    began_s = time.monotonic()
    signal.signal(signal.SIGTERM, _end)
    rounds = campaign(options.faults, options.first, options.workers, allowed, stop=options.stop)
    print(f"{summary(rounds)}\n{time.monotonic() - began_s:.0f} s")
    return int(any(each.violations for each in rounds))


if __name__ == "__main__":
    sys.exit(main())
