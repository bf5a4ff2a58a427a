"""Do programs that leave init's tree outlive a verified release, and how long does that take?

    python benchmarks/containment.py [--runs 25] [--workers 2] [--marker] [--results FILE]

Each of twelve programs (``tests/support/escapes.py``) trains under the local launcher; init, the
agent or the daemon's launcher is killed; the job ends, and once the launcher verifies the release
an auditor, which reads /proc alone, counts what lives. ``--marker``: without cgroups, as releases
before had it. Each round becomes a line of the file of results; a later call with the same file
plays the rounds that it lacks, and ``--runs 0`` plays none. Prints a table for docs/reliability.md.
Exit code 1 if cgroups left a survivor.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass
from multiprocessing import Pool
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from reshape_launcher.local.groups import ENV_BASE, Groups  # noqa: E402
from reshape_launcher.spec import Hold  # noqa: E402
from tests.support.containment_bed import KILL_AFTER_S, KILLED, Round, play  # noqa: E402
from tests.support.escapes import ESCAPES  # noqa: E402

PERCENTILE = 0.95
BOUND_S = KILL_AFTER_S + 2.0
"""A release is verified this soon after the order to end."""


@dataclass(frozen=True, slots=True)
class Case:
    """A round by its place in the campaign."""

    number: int
    escape: str
    killed: str


@dataclass(frozen=True, slots=True)
class Result:
    """What a round has found; ``load``: the machine's load average of a minute by then."""

    case: Case
    survivors: int
    release_s: float
    order_s: float
    load: float

    @property
    def after_order_s(self) -> float:
        """Time from the order, where it takes effect, to the verified release."""
        return self.release_s - self.order_s


def one_round(case: Case) -> Result:
    """Play a round in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        found: Round = play(Path(folder), case.escape, case.killed)
    load = os.getloadavg()[0]
    return Result(case, found.survivors, found.release_s, found.order_s, load)


def read(path: Path) -> list[Result]:
    """Return the results of earlier calls."""
    texts = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(text) for text in texts]
    return [Result(**(row | {"case": Case(**row["case"])})) for row in rows]


def play_missing(path: Path, runs: int, workers: int) -> None:
    """Play the rounds that a file lacks; each becomes a line of it at once."""
    there = {result.case for result in read(path)}
    cases = [
        Case(n, escape, killed) for n in range(runs) for escape in ESCAPES for killed in KILLED
    ]
    missing = [case for case in cases if case not in there]
    with Pool(workers) as pool, path.open("a") as file:
        for number, result in enumerate(pool.imap_unordered(one_round, missing), 1):
            file.write(json.dumps(asdict(result)) + "\n")
            file.flush()
            print(f"\r{number} of {len(missing)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def quantiles(values: list[float]) -> str:
    """Return p95 and maximum."""
    ordered = sorted(values)
    high = ordered[min(len(ordered) - 1, int(PERCENTILE * len(ordered)))]
    return f"{high:.1f} / {ordered[-1]:.1f}"


def cell(found: list[Result]) -> str:
    """Return rounds with a survivor of all; p95 and maximum of the seconds from kill to release."""
    survived = sum(each.survivors > 0 for each in found)
    return f"{survived} of {len(found)}; {quantiles([each.release_s for each in found])}"


def by_killed(results: list[Result]) -> list[str]:
    """Return the lines of a table: where the time of a release goes."""
    lines = [
        "| Killed | Rounds | Kill to the next agent's report, p50, p95, maximum (s) "
        f"| Order to verified release, p50, p95, maximum (s) | Later than {BOUND_S:g} s |",
        "|---|---|---|---|---|",
    ]
    for killed in KILLED:
        found = [each for each in results if each.case.killed == killed]
        if found:
            after_s = [each.after_order_s for each in found]
            order_s = [each.order_s for each in found]
            first = spread(order_s) if killed == "agent" else "0"
            late = sum(each > BOUND_S for each in after_s)
            lines.append(f"| {killed} | {len(found)} | {first} | {spread(after_s)} | {late} |")
    return lines


def spread(values: list[float]) -> str:
    """Return p50, p95 and maximum."""
    ordered = sorted(values)
    high = ordered[min(len(ordered) - 1, int(PERCENTILE * len(ordered)))]
    return f"{ordered[len(ordered) // 2]:.2f}, {high:.2f}, {ordered[-1]:.2f}"


def table(results: list[Result]) -> str:
    """Return the results as a table for docs/reliability.md, with the totals below."""
    rows = [f"| Program | {' | '.join(f'{each} killed' for each in KILLED)} |"]
    rows.append(f"|---|{'---|' * len(KILLED)}")
    for escape in ESCAPES:
        row = [
            [r for r in results if (r.case.escape, r.case.killed) == (escape, killed)]
            for killed in KILLED
        ]
        if all(row):
            rows.append(f"| {escape} | {' | '.join(map(cell, row))} |")
    rows += ["", *by_killed(results), ""]
    loads = sorted(each.load for each in results)
    survivors = sum(each.survivors > 0 for each in results)
    rows += [
        f"rounds with a survivor: {survivors} of {len(results)}, bound {3 / len(results):.2%}",
        f"load of the machine: {loads[0]:.0f} to {loads[-1]:.0f}, "
        f"median {loads[len(loads) // 2]:.0f}",
    ]
    return "\n".join(rows)


def main() -> int:
    """Play the missing rounds and print the table; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=25)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--marker", action="store_true")
    parser.add_argument("--results", type=Path, help="default: an empty file")
    options = parser.parse_args()
    if options.marker:
        os.environ[ENV_BASE] = "off"
    held = Groups(Path(tempfile.gettempdir())).containment()
    print(f"containment: {held.hold.value}; grace {KILL_AFTER_S:g} s; {held.reason}\n", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = options.results or Path(folder) / "results"
        play_missing(path, options.runs, options.workers)
        results = read(path)
    print(table(results))
    survivors = sum(each.survivors > 0 for each in results)
    return int(survivors > 0 and held.hold is not Hold.MARKER)


if __name__ == "__main__":
    sys.exit(main())
