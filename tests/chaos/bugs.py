"""Plant bugs, and see how soon the random tests find them: ``python -m tests.chaos.bugs [NAME]``.

Does: for each bug copies the tree, replaces one text, runs the command that must fail, and prints a
row for docs/reliability.md with the number of seeds, kills, states or faults that it took. Exit
code 1 if a bug was not found, or no longer fits the code. ``--check``: only that each fits.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.bug_table import BUGS, Bug, Finder

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("controller", "sidecar", "launcher", "profiles")
COPIED = (*SOURCES, "docs", "examples", "benchmarks", "tests", "pyproject.toml", "README.md")
LIMIT_S = 900.0
"""Longest time for a bug."""


@dataclass(frozen=True, slots=True)
class Command:
    """What finds bugs: words after ``python -m``, and the text that ends it with its number."""

    words: tuple[str, ...]
    ends: str
    """Regular expression of the line that tells of the first failure; its group is the number, or
    the name of the test."""
    unit: str
    offset: int = 0
    """Added to the number, which counts from 0."""


COMMANDS = {
    Finder.PLANS: Command(
        ("tests.property.random_plans", "3000", "--workers", "1"), r"seed (\d+) fails", "seeds", 1
    ),
    Finder.HANDOVERS: Command(
        ("tests.property.random_handovers", "3000", "--workers", "1"),
        r"seed (\d+) fails",
        "seeds",
        1,
    ),
    Finder.SIDECARS: Command(
        ("tests.property.random_sidecars", "3000", "--workers", "1"),
        r"seed (\d+) fails",
        "seeds",
        1,
    ),
    Finder.KILLS: Command(
        ("tests.support.daemon_kills", "--kills", "200", "--seed", "1"),
        r"kill (\d+) of seed",
        "kills",
        1,
    ),
    Finder.CHAOS: Command(("tests.chaos", "200", "--stop"), r"(\d+) faults in", "faults"),
    Finder.TEST: Command(
        ("pytest", "-q", "-x", "-p", "no:cacheprovider"), r"^FAILED \S+::(\w+)", ""
    ),
}


def copy(bug: Bug, folder: Path) -> None:
    """Copy the tree into a folder, with the bug in it."""
    for name in COPIED:
        source = ROOT / name
        ignore = shutil.ignore_patterns("__pycache__", "out")
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=ignore)
        else:
            shutil.copy(source, folder / name)
    path = folder / bug.path
    path.write_text(path.read_text().replace(bug.search, bug.replace))


def misfit(bug: Bug) -> str:
    """Return why a bug cannot be planted; empty if it can."""
    times = (ROOT / bug.path).read_text().count(bug.search)
    return "" if times == 1 else f"{bug.name}: its text is {times} times in {bug.path}, not once"


def find(bug: Bug) -> str | None:
    """Plant a bug; return the test that found it, or after how much it was found; or None."""
    command = COMMANDS[bug.finder]
    with tempfile.TemporaryDirectory(prefix="bug-") as name:
        folder = Path(name)
        copy(bug, folder)
        paths = ":".join(str(folder / source) for source in SOURCES)
        process = subprocess.Popen(
            [sys.executable, "-m", *command.words, *bug.words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": f"{paths}:{folder}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        until_s, after = time.monotonic() + LIMIT_S, None
        for line in process.stdout:
            if found := re.search(command.ends, line):
                after = found[1]
            if after is not None or time.monotonic() > until_s:
                break
        if bug.finder is not Finder.CHAOS:  # that has to end what it started
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        code = process.wait()
    if after is None or (bug.finder is Finder.CHAOS and code == 0):
        return None
    if bug.finder is Finder.TEST:
        return f"`{after}`"
    return f"{int(after) + command.offset} {command.unit}"


def main() -> int:
    """Plant the bugs that the command line names; return the exit code."""
    parser = argparse.ArgumentParser("python -m tests.chaos.bugs", description=__doc__)
    parser.add_argument("names", nargs="*", help="bugs; default: all")
    parser.add_argument("--check", action="store_true", help="only check that each fits the code")
    options = parser.parse_args()
    chosen = [bug for bug in BUGS if not options.names or bug.name in options.names]
    misfits = [text for bug in chosen if (text := misfit(bug))]
    print(*misfits, sep="\n", end="\n" if misfits else "")
    if options.check or misfits:
        return int(bool(misfits))
    print("| Bug | Found by | After |\n|---|---|---|")
    missing = 0
    for bug in chosen:
        after = find(bug)
        missing += after is None
        print(f"| {bug.text} | {bug.finder.value} | {after or 'NOT FOUND'} |", flush=True)
    return int(missing > 0)


if __name__ == "__main__":
    sys.exit(main())
