"""Whether a Unix user may write in a folder, as the modes on the way to it say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reshape_launcher.local.access import may_write

ADA, BOB = 40_001, 40_002
"""Uids without an account; their group is that of nobody."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give folders away")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for parent in (tmp_path, *tmp_path.parents[:-1]):
        if not parent.stat().st_mode & 0o001:
            parent.chmod(0o755)
    folder = tmp_path / "ada"
    folder.mkdir(mode=0o700)
    os.chown(folder, ADA, ADA)
    return folder


def test_a_private_folder_is_its_owners_alone(home: Path) -> None:
    for folder in (home, home / "run", home / "new" / "run"):
        assert may_write(folder, ADA)
        assert not may_write(folder, BOB)
        assert may_write(folder, 0)


def test_an_open_folder_in_a_private_one_is_closed_too(home: Path) -> None:
    (home / "run").mkdir()
    (home / "run").chmod(0o777)
    assert not may_write(home / "run", BOB)
    home.chmod(0o711)
    assert may_write(home / "run", BOB)
    assert not may_write(home / "other", BOB)


def test_a_link_is_where_it_leads_and_a_loop_is_nowhere(home: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(home)
    assert may_write(tmp_path / "link" / "run", ADA)
    assert not may_write(tmp_path / "link" / "run", BOB)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert not may_write(tmp_path / "loop", ADA)


def test_a_group_may_write_where_its_mode_says_so(home: Path) -> None:
    os.chown(home, ADA, 65534)
    home.chmod(0o730)
    assert may_write(home, BOB)
    home.chmod(0o750)
    assert not may_write(home, BOB)
