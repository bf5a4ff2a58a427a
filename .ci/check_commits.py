"""Checks the subject of every commit after START: its form and its length.

Does: reads the history. Where that is missing or cut short it says so, and the exit code is 0.
Never: judges merges, or commits before the rule. State: none.
"""

from __future__ import annotations

import re
import sys

from scope import GitError, git

START = "371d512719541703576c6b4053875c122df57926"
"""The last commit that the rule does not hold for."""
LENGTH_MAX = 72
TYPES = (
    "bench",
    "build",
    "chore",
    "ci",
    "docs",
    "feat",
    "fix",
    "perf",
    "refactor",
    "style",
    "test",
)
FORM = re.compile(rf"(?:{'|'.join(TYPES)})\([\w.,/ -]+\)!?: \S.*")


def unchecked() -> str:
    """Return why the subjects cannot be checked, with the remedy; empty if they can."""
    try:
        git("merge-base", "--is-ancestor", START, "HEAD")
    except GitError as error:
        return (
            f"commit subjects: NOT CHECKED, for {START[:12]} is not in this history ({error}); "
            "a full clone has it (git fetch --unshallow)"
        )
    return ""


def problems() -> list[str]:
    """Return one line for each wrong subject. Raises GitError."""
    found = []
    for line in git("log", "--no-merges", "--format=%h %s", f"{START}..HEAD").splitlines():
        commit, _, subject = line.partition(" ")
        if not FORM.fullmatch(subject):
            found.append(f"{commit}: {subject!r} is not of the form `type(scope): what it does`")
        if len(subject) > LENGTH_MAX:
            found.append(
                f"{commit}: {subject!r} has {len(subject)} letters, {LENGTH_MAX} are allowed"
            )
    return found


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    missing = unchecked()
    if missing:
        print(missing)
        return 0
    found = problems()
    for problem in found:
        print(problem)
    if found:
        print(f"types: {', '.join(TYPES)}; reword with git commit --amend or git rebase -i")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
