"""The count of instructions: a tree that does more fails and says where, or a commit says why."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEEDS_VALGRIND = pytest.mark.skipif(
    shutil.which("valgrind") is None, reason="needs valgrind: apt-get install valgrind"
)
MODULE = """
def walk(count):
    total = 0
    for number in range(count):
        total += number
    return total

def rest():
    return sum(range(10))
"""


@pytest.fixture
def instructions() -> Iterator[Any]:
    """The script as a module."""
    sys.path.insert(0, str(ROOT / ".ci"))
    try:
        yield importlib.import_module("instructions")
    finally:
        sys.path.remove(str(ROOT / ".ci"))


def trees(instructions: Any, folder: Path, *counts: int) -> list[Any]:
    """Trees whose program walks so far."""
    found = []
    for name, count in zip((instructions.BASE, "tree"), counts, strict=True):
        package = folder / name / "controller"
        package.mkdir(parents=True)
        (package / "walks.py").write_text(f"{MODULE}\nCOUNT = {count}\n")
        found.append(instructions.Tree(name, folder / name))
    return found


@NEEDS_VALGRIND
def test_a_tree_that_does_more_fails_and_the_function_that_grew_is_named(
    instructions: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    walk = "import walks\nwalks.rest()\nwalks.walk(walks.COUNT)"
    monkeypatch.setattr(instructions, "PREPARED", "import walks")
    monkeypatch.setattr(instructions, "REPLAYS", {"the walk": walk})
    monkeypatch.setattr(instructions, "ROWS", {"the walk": walk})
    base, tree = trees(instructions, tmp_path, 100_000, 104_000)
    assert not instructions.compare(base, tree, instructions.GROWTH_MAX)
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("FAILED")
    assert "+4." in said[0] or "+3." in said[0]
    assert said[1].endswith("(+4.0%)  walks:walk")
    assert len(said) == 2
    assert instructions.compare(base, tree, 0.05)


def test_trailers_allow_more_and_those_without_a_reason_are_named(instructions: Any) -> None:
    assert instructions.allowed("") == (instructions.GROWTH_MAX, [])
    assert instructions.allowed("+1 % because it checks\n\n") == (instructions.GROWTH_MAX, [])
    growth_max, wrong = instructions.allowed("+3 % because of a\n+1.5% because of b\n+9 %\n-2 %\n")
    assert growth_max == pytest.approx(0.045)
    assert wrong == ["+9 %", "-2 %"]


def run(
    tree: Path, *words: str, programs: tuple[str, ...] = ("git",)
) -> subprocess.CompletedProcess[str]:
    """Run the script in a tree, on a machine that has these programs alone."""
    there = tree.parent / "bin"
    there.mkdir(exist_ok=True)
    for name in programs:
        found = shutil.which(name)
        assert found is not None
        (there / name).unlink(missing_ok=True)
        (there / name).symlink_to(found)
    return subprocess.run(
        [sys.executable, "-B", ".ci/instructions.py", *words],
        cwd=tree,
        env={"PATH": str(there), "HOME": os.environ["HOME"]},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with the script, whose recorded commit is not in it."""
    tree = tmp_path / "tree"
    shutil.copytree(ROOT / ".ci", tree / ".ci", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["git", "init", "-q", str(tree)], check=True)
    return tree


def test_without_valgrind_and_without_a_way_to_get_it_the_remedy_is_said(tree: Path) -> None:
    done = run(tree)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("instructions: NOT COUNTED, for valgrind is missing; install it")


@NEEDS_VALGRIND
def test_without_the_recorded_commit_the_remedy_is_said(tree: Path) -> None:
    done = run(tree, programs=("git", "valgrind"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "NOT COUNTED, for the commit in .ci/passed is not here" in done.stdout
