"""Stops of real PyTorch processes at random times: steps lost, hangs, and the time to the end.

    .venv/bin/python benchmarks/pytorch_stops.py [--form hf] [--stops 200] [--results FILE]

Does: trains an unmodified script on one or two simulated GPUs, asks it to stop as init does (at
its start, during its first step, an evaluation, a save, or anywhere), starts it again from its
checkpoint, and looks that each step is made once. The starts are forks of a process that has
imported the library. Each stop becomes a line of the file of results; a later call with the same
file goes on after them. Needs .venv-pytorch, and no GPU.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.ranks_bed import Forks  # noqa: E402
from tests.support.script_stops import FORMS, ScriptStop, ScriptStops, saved  # noqa: E402


def read(path: Path, form: str) -> list[ScriptStop]:
    """Return the stops of earlier calls."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [
        stop for stop in (ScriptStop(**json.loads(line)) for line in lines) if stop.form == form
    ]


def summary(stops: list[ScriptStop]) -> str:
    """Return the figures of some stops in a line."""
    after = sorted(stop.took_s for stop in saved(stops))
    loads = sorted(stop.load for stop in stops)
    line = (
        f"{len(stops)} stops, {sum(s.made for s in stops)} steps:"
        f" {sum(s.lost for s in stops)} lost, {sum(s.repeated for s in stops)} made again or left"
        f" out, {sum(s.code is None for s in stops)} hangs, {sum(not s.is_good for s in stops)} bad"
    )
    if after:
        line += (
            f"; TERM to exit of {len(after)} that saved: median {statistics.median(after):.2f} s,"
            f" p95 {after[round(0.95 * (len(after) - 1))]:.2f} s, max {after[-1]:.2f} s"
        )
    return f"{line}; load {loads[0]:g} to {loads[-1]:g}"


def main() -> None:
    """Make the stops that the file of results does not have yet; print the figures of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--form", choices=list(FORMS), default="hf")
    parser.add_argument("--stops", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, help="default: none is kept")
    asked = parser.parse_args()
    form = FORMS[asked.form]
    with tempfile.TemporaryDirectory(prefix="reshape-stops-") as name:
        path = (asked.results or Path(name) / "results").absolute()
        done = read(path, form.name)
        # The chain goes on where it was: its folder lies beside the results.
        folder = path.with_name(f"{path.name}-{form.name}")
        forks = Forks(*form.modules)
        try:
            chain = ScriptStops(forks, folder, form)
            for stop in chain.stops(asked.seed, range(len(done) + 1, asked.stops + 1)):
                line = json.dumps(asdict(stop))
                with path.open("a") as file:
                    file.write(f"{line}\n")
                print(line, file=sys.stderr, flush=True)
                done.append(stop)
                if not stop.is_good:
                    sys.exit(f"{stop}\n{chain.printed}")
        finally:
            forks.end()
    for moment in form.moments:
        if found := [stop for stop in done if stop.moment == moment.name.lower()]:
            print(f"{moment.name.lower()}: {summary(found)}")
    print(f"{form.name}: {summary(done)}", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main()
