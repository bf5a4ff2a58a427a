"""The mark of a log: what its file holds, also after a torn write."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_controller.store.mark import SLOT_BYTES, Mark, MarkDamaged, MarkFile, parse

DIGEST = "a" * 64


def test_a_mark_reads_as_it_was_written_and_the_newest_counts(tmp_path: Path) -> None:
    file = MarkFile(tmp_path / "mark")
    assert file.read() is None
    for seq in range(1, 6):
        file.write(Mark(seq, 2, DIGEST))
        assert MarkFile(file.path).read() == Mark(seq, 2, DIGEST)
    file.sync()
    file.close()
    assert file.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mark", [Mark(0, 3), Mark(7, 9, DIGEST, accepts_loss=True)])
def test_the_text_of_a_mark_reads_back(mark: Mark) -> None:
    assert parse(mark.text()) == mark


@pytest.mark.parametrize("text", ["", "7", "x 1 - whole", "-1 1 - whole", f"{Mark(7, 1).text()}0"])
def test_a_text_that_is_no_mark_is_none(text: str) -> None:
    assert parse(text) is None


def test_a_torn_slot_leaves_the_mark_before(tmp_path: Path) -> None:
    file = MarkFile(tmp_path / "mark")
    file.write(Mark(4, 1, DIGEST))
    file.write(Mark(5, 1, DIGEST))
    with file.path.open("r+b") as torn:
        torn.seek(SLOT_BYTES)
        torn.write(b"50")
    assert file.read() == Mark(4, 1, DIGEST)
    file.path.write_bytes(b"")
    with pytest.raises(MarkDamaged, match="no readable mark"):
        file.read()


def test_a_lower_mark_takes_the_place_of_a_higher_one_only_as_a_whole_file(tmp_path: Path) -> None:
    file = MarkFile(tmp_path / "mark")
    for seq in (8, 9):
        file.write(Mark(seq, 1, DIGEST))
    file.replace(Mark(3, 1, DIGEST, accepts_loss=True))
    assert file.read() == Mark(3, 1, DIGEST, accepts_loss=True)
