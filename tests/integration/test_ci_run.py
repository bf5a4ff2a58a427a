""".ci/run itself, on a tree whose parts are stand-ins that say how they end and for how long."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

BUDGETS_MIN = {
    "test": 8,
    "test-compiled": 10,
    "test-tensorflow": 8,
    "test-pytorch": 5,
    "test-mongo": 4,
}
SCRIPT = Path(__file__).resolve().parents[2] / ".ci" / "run"
STAND_IN = """#!/bin/sh
# "NAME CODE" in the file "ends" says how the part called NAME ends, the file slow-NAME how long it
# lasts; all others end well, and at once.
for word in "$@"; do name=$word; done
echo "$name" >> ran
[ "$name" = prepare ] && nice > niceness
[ "$name" = kubernetes-workers ] && echo 3
[ -e "slow-$name" ] && sleep "$(cat "slow-$name")"
code=$(sed -n "s/^$name //p" ends)
[ -z "$code" ] || echo "the remedy of $name"
exit "${code:-0}"
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with the script and stand-ins for what it calls."""
    for name in (".ci/run", ".venv/bin/python", "bin/make"):
        (tmp_path / name).parent.mkdir(parents=True)
    shutil.copy(SCRIPT, tmp_path / ".ci" / "run")
    for name in (".venv/bin/python", "bin/make"):
        (tmp_path / name).write_text(STAND_IN)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "ends").touch()
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("*\n")
    return tmp_path


def start(tree: Path, *words: str) -> subprocess.Popen[str]:
    """The script, as a user starts it."""
    path = f"{tree / 'bin'}:{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CI_")}
    return subprocess.Popen(
        ["bash", ".ci/run", *words],
        cwd=tree,
        env=kept | {"PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(tree: Path, *words: str) -> tuple[int, str]:
    """Its exit code and what it said."""
    started = start(tree, *words)
    said, _ = started.communicate(timeout=120)
    return started.returncode, said


def ran(tree: Path) -> list[str]:
    return (tree / "ran").read_text().split()


def test_everything_is_run_and_each_part_has_its_budget_in_the_summary(tree: Path) -> None:
    code, said = run(tree)
    assert code == 0, said
    assert {"setup", "demo", "test", "kubernetes"} <= {*ran(tree)}
    summary = said.partition("== summary")[2]
    for part, minutes in BUDGETS_MIN.items():
        (line,) = [line for line in summary.splitlines() if f"(make {part})" in line]
        assert f"of {minutes * 60:4} s" in line
    assert "of 1500 s  Kubernetes tier" in summary
    assert "of 5400 s  parts together" in summary
    assert said.splitlines()[-1] == f"parts: {said.count('== ') - 1} passed, 0 failed"
    assert (tree / "niceness").read_text().strip() == "19", "it would slow the tests"


def test_fast_leaves_kubernetes_out_and_says_so(tree: Path) -> None:
    code, said = run(tree, "fast")
    assert code == 0, said
    assert not {"kubernetes", "check", "prepare", "left"} & {*ran(tree)}
    assert "left out" in said
    assert "Kubernetes tier" in said


def test_where_no_node_can_be_started_the_run_fails_and_names_the_remedy_first(tree: Path) -> None:
    (tree / "ends").write_text("check 1\n")
    code, said = run(tree)
    assert code == 1
    assert said.index("the remedy of check") < said.index("== first README command")
    assert "FAILED" in said
    assert "test-tensorflow" in ran(tree), "the other parts are worth their results all the same"
    assert not {"kubernetes", "prepare"} & {*ran(tree)}


@pytest.mark.parametrize("part", ["test", "prepare", "kubernetes"])
def test_a_part_that_fails_makes_the_run_fail(tree: Path, part: str) -> None:
    (tree / "ends").write_text(f"{part} 3\n")
    code, said = run(tree)
    assert code == 1
    assert f"the remedy of {part}" in said
    assert "(exit code 3)" in said
    assert said.rstrip().endswith(" passed, 1 failed")


def test_what_is_left_of_a_cluster_fails_the_run_unless_it_was_there_before(tree: Path) -> None:
    (tree / "ends").write_text("left 1\n")
    code, said = run(tree)
    assert code == 0
    assert "a cluster was there before this run" in said
    made = "kubernetes) echo 'left 1' > ends ;;"
    make = tree / "bin" / "make"
    make.write_text(STAND_IN.replace("code=", f'case "$name" in {made} esac\ncode=', 1))
    (tree / "ends").write_text("")
    code, said = run(tree)
    assert code == 1
    assert "the remedy of left" in said


def test_the_cluster_of_every_worker_is_looked_for(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RESHAPE_KUBE_NUMBER", raising=False)
    python = tree / ".venv" / "bin" / "python"
    python.write_text(STAND_IN.replace("code=", 'echo "$RESHAPE_KUBE_NUMBER" >> numbers\ncode=', 1))
    code, said = run(tree)
    assert code == 0, said
    assert {"0", "1", "2"} <= {*(tree / "numbers").read_text().split()}


def test_a_part_over_its_budget_is_marked_and_does_not_fail(tree: Path) -> None:
    script = tree / ".ci" / "run"
    script.write_text(script.read_text().replace("\nTEST_S=480", "\nTEST_S=1"))
    (tree / "slow-test").write_text("2.2")
    code, said = run(tree, "fast")
    assert code == 0
    (marked,) = [line for line in said.splitlines() if "OVER BUDGET" in line]
    assert "(make test)" in marked


def test_an_interrupted_run_ends_what_it_prepares_beside_the_parts(tree: Path) -> None:
    (tree / "slow-prepare").write_text("600")
    started = start(tree)
    until_s = time.monotonic() + 60
    while not (tree / "niceness").exists():
        assert time.monotonic() < until_s
        time.sleep(0.02)
    started.terminate()
    started.communicate(timeout=60)  # its output ends with the last process that holds it
    assert started.returncode != 0
    assert no_process_in(tree)


def no_process_in(folder: Path) -> bool:
    """Whether no process has ``folder`` as its working directory any more, within a minute."""
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        found = []
        for link in Path("/proc").glob("[0-9]*/cwd"):
            try:
                found.append(link.readlink())
            except OSError:
                continue
        if folder not in found:
            return True
        time.sleep(0.05)
    return False


def test_a_word_that_it_does_not_know_runs_nothing(tree: Path) -> None:
    code, said = run(tree, "quick")
    assert (code, said) == (2, "usage: .ci/run [fast]\n")
    assert not (tree / "ran").exists()
