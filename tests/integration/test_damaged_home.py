"""A daemon starts over a damaged file of its home, or says in a sentence why it does not.

The real command, a process for each start: one damage of each kind and file that held a start up.
``python -m tests.support.damaged_starts`` runs all of them.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from tests.support.daemon_bed import DEADLINE_S
from tests.support.damaged_starts import FILES, damaged, start
from tests.support.damages import DAMAGES

CASES = [
    ("store.sqlite.mark", "fifo"),
    ("store.sqlite.mark", "huge"),
    ("store.sqlite", "fifo"),
    ("store.sqlite-wal", "fifo"),
    ("boot", "zeros"),
    ("daemon.lock", "folder"),
    ("secret", "link-to-nothing"),
    ("tokens.json", "fifo"),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A home after one start, and the memory of that start."""
    home = tmp_path_factory.mktemp("whole") / "home"
    first = start(home)
    assert first.code is None, first.said
    return home, first.peak_kib


@pytest.mark.parametrize(("name", "damage"), CASES)
def test_a_damaged_file_is_a_sentence_or_no_trouble(
    whole: tuple[Path, int], tmp_path: Path, name: str, damage: str
) -> None:
    assert name in FILES
    assert damage in DAMAGES
    assert damaged(whole[0], name, damage, tmp_path).fault(whole[1]) == ""


def modes(home: Path) -> dict[str, str]:
    return {entry.name: f"{stat.S_IMODE(entry.stat().st_mode):03o}" for entry in home.iterdir()}


def test_a_home_that_others_could_read_is_closed_at_a_start_and_told_once(
    whole: tuple[Path, int], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    shutil.copytree(whole[0], home)
    (home / "jobs").mkdir(exist_ok=True)
    secrets = ("token", "secret", "tokens.json")
    loose = [each for each in home.iterdir() if each.name not in secrets]
    for each in loose:
        each.chmod(0o777 if each.is_dir() else 0o666)
    before = os.umask(0)
    try:
        first, second = start(home, DEADLINE_S), start(home, DEADLINE_S)
    finally:
        os.umask(before)
    assert (first.code, second.code) == (None, None), first.said + second.said
    assert "home-files-closed" in first.said
    assert all(each.name in first.said for each in loose)
    assert "home-files-closed" not in second.said
    assert set(modes(home).values()) == {"600", "711"}
    assert [name for name, mode in modes(home).items() if mode == "711"] == ["jobs"]
