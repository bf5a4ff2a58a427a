"""Own PyTorch scripts, reshaped in mid-epoch and not: are they equal, or does the verdict say why?

    .venv/bin/python benchmarks/training_cases.py FOLDER [--legs 2@20,1@45,2] [--results FILE]

Runs each script of the folder straight on the GPUs of the first leg, and in legs: on so many GPUs,
to a stop after so many steps. A script appends a line a step, `STEP LOSS`, to `steps.txt` in the
folder that `CASE_OUT` names, and writes `result.json` there at its end, on rank 0. A file that
reads `CASE_OUT`, or never says `result(`, is a module of the others. The starts are forks of a
process that has imported the libraries. Each script becomes a line of the file of results; a later
call with the same file goes on after them. It ends with 1 if a script differs under `exact`, or
ends otherwise than a leg asks.

The first step of each leg after the first says whether it is the one that the process before has
made (the proof). The last lines tell how many of the scripts that differ a first step has shown,
whatever the verdict was, and how many of those that are equal had a false alarm.

With `--without-look` Reshape does not look at the state of scripts: nothing of it is named, and
nothing is restored. What is seen then is seen by first steps alone.

Needs .venv-pytorch, or the Python that `--python` names, and no GPU.
"""

from __future__ import annotations

import argparse
import http.server
import json
import math
import os
import socketserver
import sys
import tempfile
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from reshape_sidecar.wire import EXIT_SAVED, WIRE_LEVEL, ProofResult  # noqa: E402
from tests.support import ranks_bed  # noqa: E402
from tests.support.pytorch_bed import PYTHON  # noqa: E402
from tests.support.ranks_bed import Forks, ScriptBed  # noqa: E402

LIBRARIES = ("torch", "transformers.trainer", "lightning.pytorch")
TOLERANCE = 1e-4
RESULT_TOLERANCE = 2e-3
MICRO_BATCHES_MAX = 8
"""Of a step of these scripts."""
WITHOUT_LOOK = """
import importlib, os, runpy, sys
for root in ("reshape_sidecar", "_reshape_hook"):  # of a session, and of the hook
    Watch = importlib.import_module(root + ".verdict.watch").Watch
    Watch.capture = Watch.capture_own = lambda self: []
    Watch.restore = lambda self, *saved, **how: None
    Watch.judge = lambda self, verdict, remedy: verdict
del sys.argv[0]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""A program that runs a script, and does not look at its state."""
EQUAL, NAMED, WRONG, FALSE_ALARM, ENDED = "equal", "named", "WRONG", "false alarm", "ENDED"


@dataclass(frozen=True, slots=True)
class Case:
    """How a script did."""

    script: str
    legs: str
    judgement: str
    worst: float
    """Largest difference of a loss, as a part of it; infinite if a step is missing or repeated."""
    verdict: str
    reason: str
    proofs: tuple[str, ...] = ()
    """What the first step of each later leg has shown."""

    @property
    def is_equal(self) -> bool:
        return self.judgement in (EQUAL, FALSE_ALARM)

    @property
    def is_seen(self) -> bool:
        """Whether a first step has differed."""
        return any(proof.startswith(ProofResult.DIFFERS) for proof in self.proofs)


class Reports(http.server.BaseHTTPRequestHandler):
    """Takes what the processes of a start report."""

    def do_POST(self) -> None:
        """Note the verdict of a report."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        progress = body.get("progress") or {}
        if progress.get("trajectory"):
            found = (progress["trajectory"], progress.get("trajectory_reason") or "")
            self.server.found.append(found)  # type: ignore[attr-defined]
        if proof := progress.get("proof"):
            shown = f"{proof['result']} {proof.get('before', 0)}-{proof['now']}: {proof['figures']}"
            self.server.proofs[proof["step"]] = shown  # type: ignore[attr-defined]
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    found: list[tuple[str, str]]
    proofs: dict[int, str]
    """What the first step after a checkpoint's step has shown."""

    def get_request(self) -> Any:
        """Give the handler an address, which a Unix socket has not."""
        request, _ = super().get_request()
        return request, ("agent", 0)


def run(forks: Forks, words: list[str], folder: Path, legs: list[tuple[int, int | None]]) -> Any:
    """Train in legs; return how the first one ended that did not end as asked (None: all did), the
    last verdict, and what first steps have shown."""
    bed = ScriptBed(forks, folder, *words)
    bed.variables = {
        "CASE_OUT": str(folder),
        "STEP_S": "0",
        "RESHAPE_REPORT_LEVEL": str(WIRE_LEVEL),
    }
    bed.variables["RESHAPE_SOCKET"] = str(folder / "s")
    server = Server(str(folder / "s"), Reports)
    server.found, server.proofs = [], {}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    other: str | None = None
    for gpus, stop_after in legs:
        bed.begins(gpus, stop_after)
        code = forks.code()
        if code != (0 if stop_after is None else EXIT_SAVED):
            other = f"{gpus}@{stop_after or 'end'} ended with code {code}"
            break
    server.shutdown()
    verdict = server.found[-1] if server.found else ("none", "")
    return other, verdict, tuple(server.proofs.values())


def rows(folder: Path, again: int = 0) -> list[tuple[str, float]]:
    """Return step and loss of each line. ``again``: lines that may be there twice, because a body
    that writes before its optimizer steps does so too in the step in which its process leaves."""
    path = folder / "steps.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    found = [(words[0], float(words[1])) for words in map(str.split, lines) if len(words) > 1]
    once = dict(found)
    return [*once.items()] if len(found) - len(once) <= again else found


def worst(one: Path, other: Path, again: int) -> float:
    """Return the largest difference between two runs, relative to a loss; ``again``: steps that may
    be there twice in the other."""
    first, second = rows(one), rows(other, again)
    if not first or [step for step, _ in first] != [step for step, _ in second]:
        return math.inf
    return max(abs(a - b) / max(abs(a), 1e-9) for (_, a), (_, b) in zip(first, second, strict=True))


def close(one: Any, other: Any) -> bool:
    """Return whether two results are equal, numbers up to a tolerance."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(close, one, other))
    if isinstance(one, float | int) and isinstance(other, float | int):
        return math.isclose(one, other, rel_tol=RESULT_TOLERANCE, abs_tol=1e-9)
    return bool(one == other)


def judged(forks: Forks, script: Path, text: str, before: list[str]) -> Case:
    """Run a script straight and in legs, and compare. ``before``: a program that runs it."""
    words = [*before, str(script)]
    legs = [(int(gpus), int(stop) if stop else None) for gpus, _, stop in
            (leg.partition("@") for leg in text.split(","))]  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="case-") as name:
        straight, reshaped = Path(name) / "a", Path(name) / "b"
        straight.mkdir()
        reshaped.mkdir()
        failed, _, _ = run(forks, words, straight, [(legs[0][0], None)])
        ended, (verdict, reason), proofs = run(forks, words, reshaped, legs)
        if failed or ended:
            lines = (straight if failed else reshaped).joinpath("log").read_text().splitlines()
            what = f"straight, {failed}" if failed else f"reshaped, {ended}"
            return Case(
                script.name, text, ENDED, math.inf, what, lines[-1] if lines else "", proofs
            )
        off = worst(straight, reshaped, MICRO_BATCHES_MAX * (len(legs) - 1))
        results = [
            json.loads((folder / "result.json").read_text()) for folder in (straight, reshaped)
        ]
    is_equal = off <= TOLERANCE and close(*results)
    is_exact = verdict == "exact"
    judgement = (EQUAL if is_exact else FALSE_ALARM) if is_equal else (WRONG if is_exact else NAMED)
    return Case(script.name, text, judgement, off, verdict, reason, proofs)


def main() -> int:
    """Judge the scripts that the file of results does not have yet; print both errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--legs", default="2@20,1@45,2")
    parser.add_argument("--python", type=Path, default=PYTHON)
    parser.add_argument("--libraries", default=",".join(LIBRARIES))
    parser.add_argument("--results", type=Path)
    parser.add_argument("--without-look", action="store_true")
    given = parser.parse_args()
    name = "results-without-look.jsonl" if given.without_look else "results.jsonl"
    path = given.results or given.folder / name
    known = (
        [Case(**json.loads(line)) for line in path.read_text().splitlines()]
        if path.exists()
        else []
    )
    cases = [case for case in known if case.legs == given.legs]
    done = {case.script for case in cases}
    vars(ranks_bed)["PYTHON"] = given.python
    os.environ["OMP_NUM_THREADS"] = "1"
    forks = Forks(*given.libraries.split(","))
    runner = Path(tempfile.mkdtemp(prefix="cases-")) / "without_look.py"
    runner.write_text(WITHOUT_LOOK)
    before = [str(runner)] if given.without_look else []
    for script in sorted(given.folder.resolve().glob("*.py")):
        if (
            script.name in done
            or "CASE_OUT" in (text := script.read_text())
            or "result(" not in text
        ):
            continue
        cases.append(judged(forks, script, given.legs, before))
        with path.open("a") as file:
            file.write(json.dumps(asdict(cases[-1])) + "\n")
        print(f"{script.name}: {cases[-1].judgement}, {cases[-1].worst:.1e}, {cases[-1].verdict}"
              f" ({cases[-1].reason})", *cases[-1].proofs, sep="\n    ", flush=True)  # fmt: skip
    forks.end()
    right = [case for case in cases if case.is_equal]
    wrong = [case for case in cases if case.judgement == WRONG]
    ended = [case for case in cases if case.judgement == ENDED]
    exact = sum(case.judgement == EQUAL for case in right)
    print(f"{len(cases)} scripts on {given.legs}: {len(wrong)} differ under `exact`, {len(ended)}"
          f" did not end as asked; of the {len(right)} that are equal {exact} are called"
          " `exact`")  # fmt: skip
    differ = [case for case in cases if case.judgement in (WRONG, NAMED)]
    print(f"a first step has shown {sum(case.is_seen for case in differ)} of the {len(differ)} that"
          f" differ, and differed in {sum(case.is_seen for case in right)} of the {len(right)} that"
          " are equal")  # fmt: skip
    return 1 if wrong or ended else 0


if __name__ == "__main__":
    sys.exit(main())
