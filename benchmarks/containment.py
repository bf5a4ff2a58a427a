"""Do programs that leave init's tree outlive a verified release, and how long does that take?

    python benchmarks/containment.py [--runs 25] [--marker]

Each of twelve programs (``tests/support/escapes.py``) trains under the local launcher; init, the
agent or the daemon's launcher is killed; the job ends, and once the launcher verifies the release
an auditor, which reads /proc alone, counts what lives. ``--marker``: without cgroups, as releases
before had it. Prints a table for docs/reliability.md. Exit code 1 if cgroups left a survivor.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from reshape_launcher.local.groups import ENV_BASE, Groups  # noqa: E402
from reshape_launcher.spec import Hold  # noqa: E402
from tests.support.containment_bed import KILL_AFTER_S, KILLED, Round, play  # noqa: E402
from tests.support.escapes import ESCAPES  # noqa: E402

PERCENTILE = 0.95


def rounds(escape: str, killed: str, count: int) -> list[Round]:
    """Return the results of ``count`` rounds, each in an empty folder."""
    found = []
    for _ in range(count):
        with tempfile.TemporaryDirectory() as folder:
            found.append(play(Path(folder), escape, killed))
    return found


def cell(found: list[Round]) -> str:
    """Return rounds with a survivor of all; p95 and maximum of the seconds to the release."""
    times_s = sorted(each.release_s for each in found)
    high_s = times_s[min(len(times_s) - 1, int(PERCENTILE * len(times_s)))]
    survived = sum(each.survivors > 0 for each in found)
    return f"{survived} of {len(found)}; {high_s:.1f} / {times_s[-1]:.1f}"


def main() -> int:
    """Play all rounds and print the table; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=25)
    parser.add_argument("--marker", action="store_true")
    options = parser.parse_args()
    if options.marker:
        os.environ[ENV_BASE] = "off"
    held = Groups(Path(tempfile.gettempdir())).containment()
    print(f"containment: {held.hold.value}; grace {KILL_AFTER_S:g} s; {held.reason}\n")
    print(f"| Program | {' | '.join(f'{each} killed' for each in KILLED)} |")
    print(f"|---|{'---|' * len(KILLED)}", flush=True)
    survivors = 0
    for escape in ESCAPES:
        row = [rounds(escape, killed, options.runs) for killed in KILLED]
        survivors += sum(each.survivors > 0 for found in row for each in found)
        print(f"| {escape} | {' | '.join(map(cell, row))} |", flush=True)
    return int(survivors > 0 and held.hold is not Hold.MARKER)


if __name__ == "__main__":
    sys.exit(main())
