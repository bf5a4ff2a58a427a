"""Log files stay within their bound and keep their newest lines."""

from __future__ import annotations

import os
from pathlib import Path

from reshape_sidecar.init import logs


def test_a_log_that_is_too_long_is_moved_aside_and_its_writer_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "training.log"
    writer = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(writer, b"x" * 100)
    logs.rotate(tmp_path, 60)
    os.write(writer, b"new")
    os.close(writer)
    assert path.read_bytes() == b"new"
    assert (tmp_path / "training.log.1").read_bytes() == b"x" * 60


def test_of_a_log_that_grows_fast_the_end_is_kept_and_no_more_than_its_bound(
    tmp_path: Path,
) -> None:
    bound = 3 * logs.CHUNK_BYTES // 2
    (tmp_path / "training.log").write_bytes(b"old" * bound + b"new" * (bound // 3))
    logs.rotate(tmp_path, bound)
    assert (tmp_path / "training.log.1").read_bytes() == b"new" * (bound // 3)
    assert (tmp_path / "training.log").stat().st_size == 0


def test_at_the_end_a_log_that_grew_since_the_newest_look_keeps_its_end(tmp_path: Path) -> None:
    path = tmp_path / "training.log"
    path.write_bytes(b"old" * 100 + b"new")
    path.chmod(0o640)
    logs.keep_end(tmp_path, 3)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640
    logs.keep_end(tmp_path, 3)
    assert [entry.name for entry in tmp_path.iterdir()] == ["training.log"]


def test_a_log_within_its_bound_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "agent.log").write_bytes(b"x" * 100)
    logs.rotate(tmp_path, 100)
    assert (tmp_path / "agent.log").stat().st_size == 100
    assert not (tmp_path / "agent.log.1").exists()
