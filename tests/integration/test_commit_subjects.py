"""The check of commit subjects, on a history of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


class History:
    """A repository with the check, whose rule begins at its first commit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / ".ci").mkdir(parents=True)
        for name in ("check_commits.py", "scope.py", "parts.py"):
            shutil.copy(ROOT / ".ci" / name, folder / ".ci" / name)
        self.git("init", "-q", "-b", "main")
        self.commit("whatever it said before the rule")
        script = folder / ".ci" / "check_commits.py"
        head, _, rest = script.read_text().partition('\nSTART = "')
        first = self.git("rev-parse", "HEAD").strip()
        script.write_text(f'{head}\nSTART = "{first}{rest[rest.index(chr(34)) :]}')

    def git(self, *words: str) -> str:
        who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
        return subprocess.check_output(["git", *who, "-C", str(self.folder), *words], text=True)

    def commit(self, subject: str) -> None:
        self.git("commit", "-q", "--allow-empty", "-m", subject)

    def check(self, folder: Path | None = None) -> tuple[int, str]:
        """The exit code and what is said."""
        done = subprocess.run(
            [sys.executable, "-B", ".ci/check_commits.py"],
            cwd=folder or self.folder,
            env={"PATH": "/usr/bin:/bin", "GIT_CEILING_DIRECTORIES": str(self.folder.parent)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == ""
        return done.returncode, done.stdout


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "tree")


def test_good_subjects_pass_and_merges_and_older_commits_are_not_judged(history: History) -> None:
    history.commit("feat(core): give a job its GPUs back")
    history.git("checkout", "-q", "-b", "side")
    history.commit("fix(store, cli)!: " + "x" * 54)
    history.git("checkout", "-q", "main")
    history.git("merge", "-q", "--no-ff", "-m", "Merge branch 'side'", "side")
    assert history.check() == (0, "")


@pytest.mark.parametrize(
    ("subject", "problem"),
    [
        ("costs are told where they are asked for", "is not of the form"),
        ("docs: say it in plain words", "is not of the form"),
        ("words(docs): say it", "is not of the form"),
        ("fix(store):", "is not of the form"),
        ("feat(core): " + "x" * 61, "has 73 letters"),
    ],
)
def test_a_wrong_subject_fails_and_is_shown_with_the_remedy(
    history: History, subject: str, problem: str
) -> None:
    history.commit(subject)
    history.commit("feat(core): do well")
    code, said = history.check()
    assert code == 1
    assert subject in said
    assert problem in said
    assert "git rebase -i" in said


def test_a_shallow_clone_is_said_to_be_unchecked(history: History, tmp_path: Path) -> None:
    history.commit("wrong")
    history.git("add", "-A")
    history.commit("wrong again")
    source = f"file://{history.folder}"
    subprocess.run(["git", "clone", "-q", "--depth", "1", source, tmp_path / "cut"], check=True)
    shutil.copytree(history.folder / ".ci", tmp_path / "cut" / ".ci", dirs_exist_ok=True)
    code, said = history.check(tmp_path / "cut")
    assert code == 0
    assert "NOT CHECKED" in said
    assert "git fetch --unshallow" in said


def test_a_tree_without_git_is_said_to_be_unchecked(history: History) -> None:
    shutil.rmtree(history.folder / ".git")
    code, said = history.check()
    assert code == 0
    assert "NOT CHECKED" in said


def test_the_history_of_this_repository_keeps_the_rule_or_is_said_to_be_unchecked() -> None:
    done = subprocess.run(
        [sys.executable, "-B", ".ci/check_commits.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
