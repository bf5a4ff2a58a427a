"""Streams that are full, closed, not UTF-8 or without a reader: no daemon ends, and no command
fails as a defect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon_bed import PROGRAM, Bed, eventually
from tests.support.daemon_bed import bed as make_bed


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)


def in_shell(bed: Bed, words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The command as a shell with redirections runs it; what it writes is read as it is told to."""
    line = f"{sys.executable} -m {PROGRAM} {words}"
    return subprocess.run(
        ["sh", "-c", line],
        capture_output=True,
        encoding=more.get("PYTHONIOENCODING", "utf-8"),
        env=bed.environment(**more),
        cwd=bed.folder,
        check=False,
    )


def test_a_daemon_whose_log_finds_no_room_goes_on(bed: Bed) -> None:
    bed.log = Path("/dev/full")
    bed.up()
    job = bed.submit("job", steps=5)
    bed.reaches(job, "completed")
    assert bed.stop() == 0


def test_a_daemon_whose_log_has_lost_its_reader_goes_on(bed: Bed) -> None:
    bed.log = bed.folder / "pipe"
    os.mkfifo(bed.log)
    reader = os.open(bed.log, os.O_RDONLY | os.O_NONBLOCK)
    bed.up()
    os.close(reader)  # every line from now on is a broken pipe
    job = bed.submit("job", steps=5)
    bed.reaches(job, "completed")
    assert bed.stop() == 0


def test_a_daemon_without_streams_runs_jobs(bed: Bed) -> None:
    up = f"{sys.executable} -m {PROGRAM} up --simulated-gpus 4 --port 0"
    bed.daemon = subprocess.Popen(
        ["sh", "-c", f"exec {up} <&- >&- 2>&-"], env=bed.environment(), cwd=bed.folder
    )
    bed.wait_until_it_answers()
    job = bed.submit("job", steps=5)
    bed.reaches(job, "completed")
    assert bed.stop() == 0


def test_a_full_disk_under_stdout_is_told_as_such(bed: Bed) -> None:
    for words in ("version", "config show -o json", "workload generate", "profile run --help"):
        done = in_shell(bed, f"{words} >/dev/full")
        assert done.returncode == 1
        assert "No space left on device" in done.stderr
        assert "remedy: free space there" in done.stderr
        assert "defect" not in done.stderr


def test_the_exit_code_is_the_same_where_stderr_is_full_or_closed(bed: Bed) -> None:
    for redirection in ("2>/dev/full", "2>&-", ">&- 2>&-"):
        assert in_shell(bed, f"get nobody {redirection}").returncode == 4
    assert in_shell(bed, "version >&-").returncode == 0
    nothing = in_shell(bed, "submit - <&-")
    assert nothing.returncode == 5
    assert "defect" not in nothing.stderr


def test_without_utf_8_tables_are_shown_and_documents_stay_whole(bed: Bed) -> None:
    bed.up()
    job = bed.submit("job", steps=5, dataset="données-▲")
    eventually(lambda: "données" in str(bed.job(job)["reason"]), text="its reason is known")
    shown = in_shell(bed, "get", PYTHONIOENCODING="latin-1", COLUMNS="100")
    assert shown.returncode == 0, shown.stderr
    assert job in shown.stdout
    assert "données-?" in shown.stdout, "the reason, with what these letters cannot say"
    told = in_shell(bed, f"get {job} -o json", PYTHONIOENCODING="ascii")
    assert json.loads(told.stdout)["dataset"] == bed.job(job)["dataset"]
