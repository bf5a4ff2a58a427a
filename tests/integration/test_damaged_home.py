"""A daemon starts over a damaged file of its home, or says in a sentence why it does not.

The real command, a process for each start: one damage of each kind and file that held a start up.
``python -m tests.support.damaged_starts`` runs all of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

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
