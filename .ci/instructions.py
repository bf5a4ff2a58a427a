"""Counts instructions of this tree and of the recorded commit; fails if this tree needs more.

    python .ci/instructions.py [BASE]

Does: runs fixed replays and the start of the command line of both trees under valgrind, which
counts the same on a busy machine as on a free one. A row that grew by more than 2 % since BASE (the
commit in `.ci/passed`) fails, with the functions that grew. Commits since BASE may allow more, with
a trailer: `Slower: +3 % because ...`; several add up. Root installs valgrind if it is missing.
Where it is missing, or BASE is or cannot run a row, nothing is counted: the text says so, and the
exit code is 0. Never: writes into the tree.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from scope import RECORD, SHOWN, GitError, git

BASE = "base"
GROWTH_MAX = 0.02
"""A row may grow by this part of the base. The spread of a row is below a tenth of it."""
SHOWN_MAX = 8
"""The most functions that are named for a row."""
SAID_MAX = 400
"""Characters of what a failed program printed last."""
PACKAGES = ("controller", "sidecar", "launcher", "profiles", "benchmarks")
TRAILER = re.compile(r"\+ ?(\d+(?:\.\d+)?) ?% because \S.*")
VALGRIND = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")
COUNTED = re.compile(r"I\s+refs:\s+([\d,]+)")
NOT_COUNTED = "instructions: NOT COUNTED"
REMEDY = "install it (apt-get install valgrind), or run this as root"

START = """
import sys
from reshape_controller.cli.main import main
sys.argv = ["reshape", "--help"]
sys.exit(main())
"""
REPLAY = """
from replay import scene_of
from reshape_controller.core.model import Mechanism
from reshape_controller.policies import make_policy
from reshape_controller.replay.shell import replay
scene, policy = scene_of(64, 100, 11_000.0), {!r}
if policy:
    replay(scene, make_policy(policy), Mechanism.SIDECAR)
"""
PREPARED = REPLAY.format("")
"""All that a replay does before it begins."""
POLICIES = ("adaptive", "paper", "fifo")
REPLAYS = {f"replay under {name}": REPLAY.format(name) for name in POLICIES}
ROWS = {"start of the command line": START} | REPLAYS
OPCODES = """
import json, sys
counts, names = {}, {}
def trace(frame, event, _):
    code = id(frame.f_code)
    if event == "opcode":
        counts[code] += 1
    elif event == "call" and code not in counts:
        counts[code] = 0
        module = frame.f_globals.get("__name__")
        names[code] = frame.f_code, f"{module}:{frame.f_code.co_qualname}"
    frame.f_trace_lines, frame.f_trace_opcodes = False, True
    return trace
program, found = compile(sys.argv.pop(), "program", "exec"), {}
sys.settrace(trace)
try:
    exec(program, {"__name__": "__main__"})
except SystemExit:
    pass
sys.settrace(None)
for code, count in counts.items():
    found[names[code][1]] = found.get(names[code][1], 0) + count
print(json.dumps(found))
"""
"""Counts the bytecode instructions of each function of the program in its argument."""


class ProgramFailed(Exception):
    """A row's program failed on a tree. The text is what it said last."""

    def __init__(self, tree: str, text: str) -> None:
        super().__init__(text)
        self.tree = tree


@dataclass(frozen=True)
class Tree:
    """A copy of the packages, with what the interpreter compiled of them."""

    name: str
    folder: Path

    def run(self, *words: str, before: tuple[str, ...] = ()) -> str:
        """Run the interpreter on this tree; what it printed. Raises ProgramFailed."""
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "PYTHONHASHSEED": "0",
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": ":".join(str(self.folder / name) for name in PACKAGES),
        }
        done = subprocess.run(
            [*before, sys.executable, *words],
            env=environ,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ProgramFailed(self.name, done.stderr.strip()[-SAID_MAX:])
        return done.stdout

    def instructions(self, program: str) -> int:
        """Return the instructions of a program, from its start to its end. Raises ProgramFailed."""
        with tempfile.NamedTemporaryFile("r", dir=self.folder, suffix=".log") as log:
            self.run("-c", program, before=(*VALGRIND, f"--log-file={log.name}"))
            found = COUNTED.search(log.read())
        if found is None:
            raise ProgramFailed(self.name, "valgrind printed no number of instructions")
        return int(found[1].replace(",", ""))

    def opcodes(self, program: str) -> dict[str, int]:
        """Return the bytecode instructions of each function of a program."""
        found = json.loads(self.run("-c", OPCODES, program).splitlines()[-1])
        assert isinstance(found, dict)
        return found


def recorded() -> str:
    """Return the commit that last passed. Raises OSError."""
    return RECORD.read_text().strip()


def not_counted(base: str = "") -> str:
    """Return why nothing can be counted against a commit, or against the recorded one, with the
    remedy; empty if it can be."""
    if shutil.which("valgrind") is None:
        return f"{NOT_COUNTED}, for valgrind is missing; {REMEDY}"
    try:
        git("rev-parse", "--verify", "-q", f"{base or recorded()}^{{commit}}")
    except (GitError, OSError):
        named = base or f"the commit in {RECORD}"
        return f"{NOT_COUNTED}, for {named} is not here; a full clone has it"
    return ""


def install() -> None:
    """Install valgrind, if it is missing and this is root."""
    if shutil.which("valgrind") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        environ = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for words in (("update", "-qq"), ("install", "-y", "-qq", "valgrind")):
            subprocess.run(["apt-get", *words], env=environ, check=False, capture_output=True)


def allowed(messages: str) -> tuple[float, list[str]]:
    """Return by what part a row may grow, and the trailers that are wrong. ``messages``: the values
    of all trailers, one a line."""
    lines = [line.strip() for line in messages.splitlines() if line.strip()]
    matches = [(line, TRAILER.fullmatch(line)) for line in lines]
    parts = [float(match[1]) / 100.0 for _, match in matches if match]
    return max(GROWTH_MAX, sum(parts)), [line for line, match in matches if not match]


def grown(before: dict[str, int], after: dict[str, int]) -> Iterator[str]:
    """Describe the functions that execute most more bytecode than before, the most first."""
    more = {name: count - before.get(name, 0) for name, count in after.items()}
    for name in sorted(more, key=lambda name: (-more[name], name))[:SHOWN_MAX]:
        if more[name] > 0:
            known = before.get(name, 0)
            part = f"{more[name] / known:+.1%}" if known else "new"
            yield f"{more[name]:+12,} bytecodes ({part})  {name}"


def count(trees: tuple[Tree, Tree]) -> dict[str, list[int]]:
    """Return the instructions of each row, by tree; of a replay without those before it begins.

    Raises ProgramFailed.
    """
    programs = {"": PREPARED} | ROWS
    with ThreadPoolExecutor(len(trees)) as pool:
        for tree in trees:  # the first run of each program compiles
            list(pool.map(lambda text, tree=tree: tree.run("-c", text), programs.values()))
        runs = [(tree, text) for text in programs.values() for tree in trees]
        counted = list(pool.map(lambda run: run[0].instructions(run[1]), runs))
    found = {name: [counted.pop(0) for _ in trees] for name in programs}
    before = found.pop("")
    for name in REPLAYS:
        found[name] = [all_of - part for all_of, part in zip(found[name], before, strict=True)]
    return found


def compare(base: Tree, tree: Tree, growth_max: float) -> bool:
    """Count all rows of both trees and print them; whether none grew by more than allowed.

    Raises ProgramFailed.
    """
    passed = True
    for name, (before, after) in count((base, tree)).items():
        growth = after / before - 1.0
        word = "FAILED" if growth > growth_max else "ok"
        counts = f"{before / 1e6:,.1f} to {after / 1e6:,.1f} million"
        print(f"{word:8}{name:28}{growth:+8.2%}  ({counts})", flush=True)
        if growth > growth_max:
            passed = False
            shown = list(grown(base.opcodes(ROWS[name]), tree.opcodes(ROWS[name])))
            for line in shown or ["no function executes more bytecode: look at their calls of C"]:
                print(f"        {line}", flush=True)
    return passed


def main(words: list[str]) -> int:
    """Compare with a commit; 1 if a row grew by more than allowed."""
    install()
    why = not_counted(*words[:1])
    if why:
        print(why)
        return 0
    base = words[0] if words else recorded()
    growth_max, wrong = allowed(
        git("log", "--format=%(trailers:key=Slower,valueonly)", f"{base}..HEAD")
    )
    for line in wrong:
        print(f"FAILED  the trailer 'Slower: {line}' is not of the form '+3 % because ...'")
    with tempfile.TemporaryDirectory(prefix="reshape-instructions-") as name:
        old, new = Path(name, "base"), Path(name, "tree")
        git("archive", "-o", f"{name}/base.tar", base, *PACKAGES)
        with tarfile.open(f"{name}/base.tar") as archive:
            archive.extractall(old, filter="data")
        for package in PACKAGES:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(package, new / package, ignore=ignored)
        print(f"instructions since {base[:SHOWN]}; a row may grow by {growth_max:.0%}", flush=True)
        try:
            passed = compare(Tree(BASE, old), Tree("tree", new), growth_max)
        except ProgramFailed as failed:
            if failed.tree == BASE:
                print(f"{NOT_COUNTED}, for the base cannot run what is measured: {failed}")
                return 0
            print(f"FAILED  a program of the rows fails: {failed}")
            return 1
    if not passed:
        print("make them faster, or say why not in a commit: 'Slower: +3 % because ...'")
    return int(not passed or bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
