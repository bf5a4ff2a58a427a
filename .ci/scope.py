"""Which tiers run whole: the changed paths since the recorded commit, looked up in the table.

Does: asks git. Never: writes, but for the record that `.ci/run all` asks for. State: `.ci/passed`,
the commit that last passed `.ci/run all`; people commit it.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from parts import EVERYTHING, Part

RECORD = Path(".ci/passed")
SHOWN = 12
"""Letters of a commit's name that people read."""


class GitError(Exception):
    """Git did not answer. The text is what it said."""


@dataclass(frozen=True)
class Scope:
    """How much runs, and why."""

    whole: bool
    """Every tier runs whole."""
    base: str
    """The sentence of the summary on the base."""
    changed: tuple[str, ...] = field(default=())
    """Paths that differ from the base, if there is one."""

    def pulls(self, part: Part) -> str:
        """Return the first changed path that runs this part whole; empty if none does."""
        return next((path for path in self.changed if path.startswith(part.pulled_by)), "")


def git(*words: str) -> str:
    """Return what git writes. Raises GitError."""
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    except OSError as error:
        raise GitError(str(error)) from None
    if done.returncode != 0:
        raise GitError(done.stderr.strip() or f"git {words[0]} ended with {done.returncode}")
    return done.stdout


def status() -> str:
    """Return git's list of uncommitted paths; a text that no tree has where git cannot tell."""
    try:
        return git("status", "--porcelain")
    except GitError as error:
        return f"unknown: {error}\n"


def head() -> str:
    """Return the commit that is checked out; empty where git cannot tell."""
    try:
        return git("rev-parse", "HEAD").strip()
    except GitError:
        return ""


def of_changes() -> Scope:
    """Compare the tree with the recorded commit."""
    if not RECORD.is_file():
        return Scope(True, f"base: none, for there is no {RECORD}: every tier runs whole")
    base = RECORD.read_text().strip()
    if not re.fullmatch(r"[0-9a-f]{40,64}", base):
        return Scope(True, f"base: none, for {RECORD} holds {base!r}: every tier runs whole")
    short = base[:SHOWN]
    try:
        git("merge-base", "--is-ancestor", base, "HEAD")
        listed = git("diff", "--name-only", "--no-renames", "-z", base)
        listed += git("ls-files", "--others", "--exclude-standard", "-z")
    except GitError as error:
        why = f"{short} is no ancestor in this history ({error})"
        return Scope(True, f"base: none, for {why}: every tier runs whole")
    changed = tuple(sorted({name for name in listed.split("\0") if name} - {str(RECORD)}))
    said = f"base: {short} ({RECORD}), {len(changed)} changed paths"
    everything = [path for path in changed if path.startswith(EVERYTHING)]
    if everything:
        return Scope(True, f"{said}; {everything[0]} is one: every tier runs whole", changed)
    return Scope(False, said, changed)


def write_record(commit: str, status_before: str) -> str:
    """Write the record if the tree is a commit's; the sentence of the summary on it."""
    if not commit or status_before or status() or head() != commit:
        return "record: not written, for the tree is not that of a commit: commit, then run all"
    RECORD.write_text(f"{commit}\n")
    return f"record: {commit[:SHOWN]} is in {RECORD} now: commit that file"
