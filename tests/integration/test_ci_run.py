""".ci/run itself, on a tree whose parts are stand-ins that say how they end and for how long."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cgroup_bed import base

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 100.0
"""For what takes a second on a quiet machine."""
TIERS = ("test", "test-tensorflow", "test-pytorch", "test-mongo", "test-ferretdb", "kubernetes")
"""Targets of which the gate runs a part."""
STAND_IN = """#!/bin/sh
# "NAME CODE" in the file "ends" says how the part called NAME ends, the file slow-NAME how long it
# lasts; all others end well, and at once. The file "ran" has a line for each.
whole=$*
gate=
for word in "$@"; do
  case "$word" in GATE=1) gate=" gate" ;; *) name=$word ;; esac
done
echo "$name$gate" >> out/ran
[ "$name" = prepare ] && nice > out/niceness
[ "$name" = kubernetes-workers ] && echo 3
[ "$name" = left ] && echo "$RESHAPE_KUBE_NUMBER" >> out/numbers
[ -e "out/slow-$name" ] && sleep "$(cat "out/slow-$name")"
[ -e "out/do-$name" ] && . "out/do-$name"
code=$(sed -n "s/^$name //p" out/ends)
[ -z "$code" ] || echo "the remedy of $name"
exit "${code:-0}"
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with .ci and stand-ins for what it calls, recorded as passed."""
    tree = tmp_path / "tree"
    shutil.copytree(ROOT / ".ci", tree / ".ci", ignore=shutil.ignore_patterns("__pycache__"))
    (tree / ".ci" / "passed").unlink(missing_ok=True)
    table(tree, "STAYS_S = 20.0", "STAYS_S = 1.0", "leftovers.py")
    for name in (".venv/bin/python", "bin/make"):
        (tree / name).parent.mkdir(parents=True)
        (tree / name).write_text(STAND_IN)
        (tree / name).chmod(0o755)
    (tree / "out").mkdir()
    (tree / "out" / "ends").touch()
    (tree / ".gitignore").write_text("/out/\n__pycache__/\n.pytest_cache/\n")
    git(tree, "init", "-q")
    record(tree, commit(tree))
    return tree


def table(tree: Path, old: str, new: str, name: str = "parts.py") -> None:
    """Replace the one place in a file of .ci that a pattern finds."""
    path = tree / ".ci" / name
    text, count = re.subn(old, new, path.read_text())
    assert count == 1
    path.write_text(text)


def git(tree: Path, *words: str) -> str:
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
    return subprocess.check_output(["git", *who, "-C", str(tree), *words], text=True).strip()


def commit(tree: Path) -> str:
    git(tree, "add", "-A", "-f", ".", ":!out")
    git(tree, "commit", "-q", "-m", "ci(test): make a tree")
    return git(tree, "rev-parse", "HEAD")


def record(tree: Path, name: str) -> None:
    (tree / ".ci" / "passed").write_text(f"{name}\n")
    commit(tree)


def change(tree: Path, name: str) -> None:
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_text("changed\n")


def start(tree: Path, *words: str, **more: Any) -> subprocess.Popen[str]:
    """The script, as a user starts it."""
    path = f"{tree / 'bin'}:{os.environ['PATH']}"
    dropped = ("CI_RUN_ID", "GATE", "MAKEFLAGS", "RESHAPE_KUBE_NUMBER")
    inherited = {name: value for name, value in os.environ.items() if name not in dropped}
    return subprocess.Popen(
        ["bash", ".ci/run", *words],
        cwd=tree,
        env=inherited | {"PATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **more,
    )


def run(tree: Path, *words: str) -> tuple[int, str]:
    """Its exit code and what it said."""
    (tree / "out" / "ran").unlink(missing_ok=True)
    started = start(tree, *words)
    said, _ = started.communicate(timeout=WAIT_S)
    return started.returncode, said


def ran(tree: Path) -> list[str]:
    path = tree / "out" / "ran"
    return path.read_text().splitlines() if path.exists() else []


def summary(said: str) -> list[str]:
    return said.partition("== summary")[2].splitlines()


def line_of(said: str, target: str) -> str:
    """The summary's line on a make target."""
    (line,) = [line for line in summary(said) if f"(make {target})" in line.partition(";")[0]]
    return line


def test_the_gate_runs_every_tier_and_names_the_base_and_what_did_not_run_whole(tree: Path) -> None:
    base = (tree / ".ci" / "passed").read_text()[:12]
    code, said = run(tree)
    assert code == 0, said
    assert {"setup", "demo", *(f"{tier} gate" for tier in TIERS)} <= {*ran(tree)}
    assert f"base: {base} (.ci/passed), 0 changed paths" in summary(said)
    for tier in TIERS:
        assert "its gate only" in line_of(said, tier)
    assert summary(said)[-1] == f"parts: {said.count('== ') - 1} passed, 0 failed"
    niceness = min(19, os.nice(0) + 19)
    assert int((tree / "out" / "niceness").read_text()) == niceness, "it would slow the tests"


def test_all_runs_every_part_whole(tree: Path) -> None:
    code, said = run(tree, "all")
    assert code == 0, said
    assert {"setup", "demo", *TIERS} <= {*ran(tree)}
    assert not [line for line in ran(tree) if line.endswith(" gate")]
    assert not [line for line in summary(said) if "left out" in line or "gate only" in line]


@pytest.mark.parametrize(
    ("path", "pulled"),
    [
        ("sidecar/reshape_sidecar/hook/fit.py", {"test-tensorflow", "test-pytorch"}),
        ("deploy/chart/values.yaml", {"kubernetes"}),
        ("launcher/reshape_launcher/kubernetes/pod.py", {"kubernetes"}),
        ("controller/reshape_controller/store/mongo.py", {"test-mongo", "test-ferretdb"}),
        ("controller/reshape_controller/core/model.py", {"test"}),
        ("docs/jobs.md", set()),
    ],
)
def test_a_changed_path_pulls_its_tiers_whole_and_no_other(
    tree: Path, path: str, pulled: set[str]
) -> None:
    change(tree, path)
    if path.endswith(".py"):  # one that is not committed counts as well
        commit(tree)
    code, said = run(tree)
    assert code == 0, said
    assert {*ran(tree)} & {*TIERS} == pulled
    for target in pulled:
        assert line_of(said, target).endswith(f"{path} changed")
    assert {f"{tier} gate" for tier in TIERS} - {*ran(tree)} == {f"{tier} gate" for tier in pulled}


def test_a_file_that_moved_out_of_a_tier_pulls_it(tree: Path) -> None:
    change(tree, "deploy/a.yaml")
    record(tree, commit(tree))
    (tree / "deploy" / "a.yaml").rename(tree / "a.yaml")
    commit(tree)
    run(tree)
    assert "kubernetes" in ran(tree)


@pytest.mark.parametrize("path", [".ci/main.py", "requirements.lock", "Makefile"])
def test_a_change_of_what_every_tier_rests_on_runs_all_of_them_whole(tree: Path, path: str) -> None:
    with (tree / path).open("a") as file:
        file.write("\n")
    code, said = run(tree)
    assert code == 0, said
    assert {*TIERS} <= {*ran(tree)}
    assert f"{path} is one: every tier runs whole" in said


@pytest.mark.parametrize(
    "case", ["no record", "no commit", "other history", "no ancestor", "no git"]
)
def test_without_a_base_every_tier_runs_whole_and_nothing_is_recorded(
    tree: Path, case: str
) -> None:
    passed = tree / ".ci" / "passed"
    if case == "no record":
        passed.unlink()
    elif case == "no commit":
        passed.write_text("main\n")
    elif case == "other history":
        passed.write_text(f"{'0' * 40}\n")
    elif case == "no ancestor":
        git(tree, "checkout", "-q", "-b", "side")
        change(tree, "side")
        side = commit(tree)
        git(tree, "checkout", "-q", "-")
        passed.write_text(f"{side}\n")
    else:
        shutil.rmtree(tree / ".git")
    before = passed.read_text() if passed.exists() else ""
    code, said = run(tree)
    assert code == 0, said
    assert "base: none" in said
    assert {*TIERS} <= {*ran(tree)}
    assert (passed.read_text() if passed.exists() else "") == before


def test_only_all_writes_the_record_after_a_pass_on_a_clean_tree(tree: Path) -> None:
    change(tree, "docs/a.md")
    new = commit(tree)
    passed = tree / ".ci" / "passed"
    old = passed.read_text()

    def after(*words: str) -> str:
        said = run(tree, *words)[1]
        assert ("record: not written" in said) is (words == ("all",)), said
        return passed.read_text()

    assert after() == old
    assert after("fast") == old
    (tree / "out" / "ends").write_text("test 1\n")
    assert after("all") == old
    (tree / "out" / "ends").write_text("")
    change(tree, "untracked")
    assert after("all") == old
    (tree / "untracked").unlink()
    code, said = run(tree, "all")
    assert (code, passed.read_text()) == (0, f"{new}\n"), said
    assert f"record: {new[:12]} is in .ci/passed now" in said
    commit(tree)
    said = run(tree)[1]
    assert f"base: {new[:12]} (.ci/passed), 0 changed paths" in said


def test_fast_leaves_kubernetes_out_and_says_so(tree: Path) -> None:
    code, said = run(tree, "fast")
    assert code == 0, said
    assert not {"kubernetes", "kubernetes gate", "check", "prepare", "left"} & {*ran(tree)}
    assert line_of(said, "kubernetes").startswith("left out")


def test_where_no_node_can_be_started_the_run_fails_and_names_the_remedy_first(tree: Path) -> None:
    (tree / "out" / "ends").write_text("check 1\n")
    code, said = run(tree)
    assert code == 1
    assert said.index("the remedy of check") < said.index("== first README command")
    assert "test-tensorflow gate" in ran(tree), "the other parts are worth their results"
    assert not {"kubernetes gate", "prepare"} & {*ran(tree)}
    assert line_of(said, "kubernetes").startswith("not run")


@pytest.mark.parametrize("part", ["test", "prepare", "kubernetes", "left"])
def test_a_part_that_fails_makes_the_run_fail_and_is_named(tree: Path, part: str) -> None:
    if part == "left":
        (tree / "out" / "do-kubernetes").write_text("echo 'left 3' > out/ends\n")
    else:
        (tree / "out" / "ends").write_text(f"{part} 3\n")
    code, said = run(tree)
    assert code == 1
    assert f"the remedy of {part}" in said
    (failed,) = [line for line in summary(said) if line.startswith("FAILED")]
    assert part == "left" or failed.endswith("(exit code 3)")
    assert said.rstrip().endswith(" passed, 1 failed")


def test_after_a_set_up_that_failed_no_part_runs_and_each_is_named(tree: Path) -> None:
    (tree / "out" / "ends").write_text("setup 2\n")
    code, said = run(tree)
    assert (code, ran(tree)) == (1, ["setup"])
    for tier in (*TIERS, "demo"):
        assert line_of(said, tier).startswith("not run")


def test_a_cluster_that_was_there_before_stays_and_fails_nothing(tree: Path) -> None:
    (tree / "out" / "ends").write_text("left 1\n")
    code, said = run(tree)
    assert code == 0
    assert "a cluster was there before this run" in said


def test_the_cluster_of_every_worker_is_looked_for(tree: Path) -> None:
    code, said = run(tree)
    assert code == 0, said
    assert {"0", "1", "2"} <= {*(tree / "out" / "numbers").read_text().split()}


@pytest.mark.parametrize(
    ("leaves", "said_of_it"),
    [("sleep 300 >/dev/null 2>&1 &", "still runs: "), ("echo a > b", "?? b")],
)
def test_a_process_or_a_file_that_is_left_fails_the_run(
    tree: Path, leaves: str, said_of_it: str
) -> None:
    (tree / "out" / "do-test").write_text(f"{leaves}\necho $! > out/pid\n")
    code, said = run(tree)
    left = (tree / "out" / "pid").read_text().strip()
    if left:
        os.kill(int(left), signal.SIGKILL)
    assert code == 1
    assert said_of_it in said
    (failed,) = [line for line in summary(said) if line.startswith("FAILED")]
    assert said_of_it in failed.partition("nothing left behind: ")[2], "the summary says it too"


def test_an_empty_cgroup_that_is_left_fails_the_run(tree: Path) -> None:
    group = base() / f"reshape-left-by-a-test-{os.getpid()}"
    (tree / "out" / "do-test").write_text(f"mkdir {group}\n")
    try:
        code, said = run(tree)
    finally:
        group.rmdir()
    assert code == 1
    assert f"empty cgroup is left: {group}\n" in said


def test_a_part_over_its_budget_is_marked_and_does_not_fail_and_times_are_in_a_file(
    tree: Path,
) -> None:
    table(tree, r'make\("test"\), [\d.]+, [\d.]+', 'make("test"), 1, 0.001')
    (tree / "out" / "slow-test").write_text("1.2")
    code, said = run(tree)
    assert code == 0
    (marked,) = [line for line in said.splitlines() if "OVER BUDGET" in line]
    assert "(make test)" in marked
    times = json.loads((tree / "out" / "ci" / "times.json").read_text())
    (test,) = [part for part in times["parts"] if "(make test)" in part["part"]]
    assert (test["took_s"] >= 1.2, test["result"], test["whole"]) == (True, "ok", True)


def test_a_tier_that_no_longer_fits_has_its_gate_only_and_is_named(tree: Path) -> None:
    table(tree, r'make\("test-tensorflow"\), [\d.]+, [\d.]+', 'make("test-tensorflow"), 4, 500')
    code, said = run(tree)
    assert code == 0
    assert {"test", "test-tensorflow gate", "test-pytorch"} <= {*ran(tree)}
    assert line_of(said, "test-tensorflow").endswith("no time is left for the whole tier")
    assert "test-tensorflow" in (run(tree, "all"), ran(tree))[1], "`all` leaves nothing out"


def test_where_no_time_is_left_every_tier_still_has_its_gate(tree: Path) -> None:
    table(tree, r"FITS_MIN = \d+", "FITS_MIN = 1")
    code, said = run(tree)
    assert code == 0
    assert {*ran(tree)} & {*TIERS} == set()
    assert {f"{tier} gate" for tier in TIERS} <= {*ran(tree)}
    assert said.count("no time is left for the whole tier") == len(TIERS)


def test_a_slow_machine_counts_its_slowness(tree: Path) -> None:
    for name in ("setup", "demo"):
        table(tree, rf'make\("{name}"\), \d, \d', f'make("{name}"), 0, 0.0001')
    table(tree, r'empty clone", python\(".ci/first_picture.py"\), 1, 1',
          'empty clone", python(".ci/first_picture.py"), 0, 0')  # fmt: skip
    (tree / "out" / "slow-setup").write_text("1")
    code, said = run(tree)
    assert code == 0, "80 times slower than the table says when the first tier has its turn"
    assert "no time is left for the whole tier" in line_of(said, "test")


def test_a_run_over_its_limit_ends_itself_and_says_so(tree: Path) -> None:
    table(tree, r"LIMIT_MIN = \d+", "LIMIT_MIN = 0.03")
    (tree / "out" / "slow-demo").write_text("600")
    code, said = run(tree)
    assert code == 128 + signal.SIGALRM
    assert "FAILED: the run is over its limit of 0.03 min" in said
    assert "parts: " in said, "the summary says what passed until then"
    assert no_process_in(tree)


NOTES = "mkdir -p .pytest_cache/v/cache; echo '{}' > .pytest_cache/v/cache/lastfailed; "
"""A stand-in's way to note failed tests, as pytest does."""


@pytest.mark.parametrize("passes", [True, False])
def test_the_few_failed_tests_of_a_part_run_once_more_and_are_named(
    tree: Path, passes: bool
) -> None:
    notes = NOTES.replace("{}", '{"tests/a.py::one": true}')
    second = 'echo "$PYTEST_ADDOPTS" > out/options; ' + ("sed -i d out/ends" if passes else "")
    (tree / "out" / "ends").write_text("test-mongo 1\n")
    (tree / "out" / "do-test-mongo").write_text(
        f"if [ -e out/again ]; then {second or ':'}\nelse {notes}touch out/again; fi\n"
    )
    code, said = run(tree)
    assert code == (0 if passes else 1)
    assert "--last-failed" in (tree / "out" / "options").read_text()
    assert ran(tree).count("test-mongo gate") + ran(tree).count("test-mongo") == 2
    assert "FAILED ONCE: tests/a.py::one" in line_of(said, "test-mongo")


@pytest.mark.parametrize("tests", [0, 13])
def test_a_part_without_noted_tests_or_with_many_runs_once(tree: Path, tests: int) -> None:
    noted = json.dumps({f"tests/a.py::test_{number}": True for number in range(tests)})
    (tree / "out" / "ends").write_text("test-mongo 1\n")
    (tree / "out" / "do-test-mongo").write_text(NOTES.replace("{}", noted))
    code, _ = run(tree)
    assert code == 1
    assert len([name for name in ran(tree) if name.startswith("test-mongo")]) == 1


def test_a_note_of_an_earlier_part_runs_nothing_again(tree: Path) -> None:
    (tree / "out" / "do-test").write_text(NOTES.replace("{}", '{"tests/a.py::one": true}'))
    (tree / "out" / "ends").write_text("test-mongo 1\n")
    assert run(tree)[0] == 1
    assert len([name for name in ran(tree) if name.startswith("test-mongo")]) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_an_interrupted_run_ends_what_it_prepares_beside_the_parts(
    tree: Path, number: signal.Signals
) -> None:
    (tree / "out" / "slow-prepare").write_text("600")
    interrupted(tree, tree / "out" / "niceness", number)


def test_an_interrupted_run_ends_the_part_that_runs(tree: Path) -> None:
    (tree / "out" / "do-demo").write_text("touch out/begun\nsleep 600\n")
    interrupted(tree, tree / "out" / "begun", signal.SIGTERM)


def interrupted(tree: Path, begun: Path, number: signal.Signals) -> None:
    """Send the signal as soon as a file is there: no process is left, and the summary says so."""
    started = start(tree)
    until_s = time.monotonic() + WAIT_S
    while not begun.exists():
        assert time.monotonic() < until_s, started.poll()
        time.sleep(0.001)
    started.send_signal(number)
    said, _ = started.communicate(timeout=WAIT_S)  # it ends with the last process that holds it
    assert started.returncode == 128 + number, said
    assert f"== interrupted by signal {number}" in said
    assert no_process_in(tree)


def test_a_run_whose_starter_ignores_hangups_goes_on(tree: Path) -> None:
    (tree / "out" / "do-demo").write_text("touch out/begun\nwhile [ ! -e out/go ]; do :; done\n")
    ignore = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
    command = [sys.executable, "-c", f"{ignore}os.execvp('bash', ['bash', '.ci/run'])"]
    path = f"{tree / 'bin'}:{os.environ['PATH']}"
    with subprocess.Popen(
        command, cwd=tree, env=os.environ | {"PATH": path}, stdout=subprocess.DEVNULL
    ) as started:
        until_s = time.monotonic() + WAIT_S
        while not (tree / "out" / "begun").exists():
            assert time.monotonic() < until_s
            time.sleep(0.02)
        started.send_signal(signal.SIGHUP)
        (tree / "out" / "go").touch()
        assert started.wait(WAIT_S) == 0


def no_process_in(folder: Path) -> bool:
    """Whether no process has ``folder`` as its working directory any more, within a minute."""
    until_s = time.monotonic() + WAIT_S
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
    assert (code, said) == (2, "usage: .ci/run [all|fast]\n")
    assert ran(tree) == []


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The table itself."""
    monkeypatch.syspath_prepend(str(ROOT / ".ci"))
    yield importlib.import_module("parts")
    sys.modules.pop("parts")


def test_the_budgets_add_up_to_no_more_than_those_of_all_parts(parts: Any) -> None:
    assert sum(part.gate_min for part in parts.PARTS) <= parts.GATE_MIN
    assert sum(part.all_min for part in parts.PARTS) <= parts.ALL_MIN


def test_every_path_of_the_table_is_there(parts: Any) -> None:
    prefixes = {*parts.EVERYTHING, *(path for part in parts.PARTS for path in part.pulled_by)}
    for prefix in prefixes:
        path = ROOT / prefix
        assert path.is_dir() if prefix.endswith("/") else path.is_file(), prefix


def test_a_part_comes_after_what_it_needs(parts: Any) -> None:
    names = [part.name for part in parts.PARTS]
    assert len(names) == len({*names})
    for part in parts.PARTS:
        if not part.after:
            continue
        needed = parts.PARTS[names.index(part.after)]
        assert names.index(needed.name) < names.index(part.name)
