"""The version before is replaced while its jobs run: they train on, and stay their users'."""

from __future__ import annotations

import io
import signal
import subprocess
import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.daemon_bed import ROOT, SAVES, SOURCES, Bed, eventually, start_of
from tests.support.daemon_bed import bed as make_bed
from tests.support.requirement import missing

VERSION_BEFORE = "99645a2eb3b3db298bd7d1ae54c87fa57cebdf26"
"""The commit before identities: one token, no ``tokens.json``, and ``user`` is free text."""


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)


@pytest.fixture
def sources_before(tmp_path: Path) -> Path:
    """The packages of the version before, from the repository's history."""
    words = ("git", "-C", str(ROOT), "archive", VERSION_BEFORE, *SOURCES)
    packed = subprocess.run(words, capture_output=True, check=False)
    if packed.returncode:
        missing(f"needs commit {VERSION_BEFORE} in the history: {packed.stderr.decode()}")
    folder = tmp_path / "before"
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def _ended(pid: int) -> bool:
    return start_of(pid) is None


def test_jobs_of_the_version_before_keep_their_process_and_user_and_obey_the_old_token(
    bed: Bed, sources_before: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr("tests.support.daemon_bed.ROOT", sources_before)
        bed.up()
        assert bed.reshape("token", "list").returncode != 0, "it has no identities"
        graces = bed.submit("graces", SAVES, steps=100_000, optional_gpus=[2], user="grace")
        pids = {graces: bed.pid(graces, size=2)}
        plain = bed.submit("plain", SAVES, steps=100_000, optional_gpus=[2])
        pids[plain] = bed.pid(plain, size=2)
        waiting = bed.submit("waiting", SAVES, steps=5, optional_gpus=[4], user="ada")
        users = {job: bed.job(job)["user"] for job in (graces, plain, waiting)}
        token = (bed.home / "token").read_bytes()
        bed.stop(signal.SIGKILL)
    started = {job: start_of(pid) for job, pid in pids.items()}
    bed.up()
    for job, pid in pids.items():
        found = bed.reaches(job, "running", size=2)
        assert (found["pid"], found["attempt"], found["process_restarts"]) == (pid, 1, 0)
        assert start_of(pid) == started[job] is not None
    assert {job: bed.job(job)["user"] for job in users} == users
    assert (users[graces], users[waiting]) == ("grace", "ada")
    assert (bed.home / "token").read_bytes() == token
    made = bed.reshape("token", "create", "grace")
    assert made.returncode == 0, made.stderr
    refused = bed.reshape("cancel", plain, RESHAPE_TOKEN=made.stdout.strip())
    assert (refused.returncode, "another user than grace" in refused.stderr) == (5, True)
    own = bed.reshape("cancel", graces, RESHAPE_TOKEN=made.stdout.strip())
    assert own.returncode == 0, own.stderr
    done = bed.reshape("cancel", plain)
    assert done.returncode == 0, done.stderr
    for job, pid in pids.items():
        bed.reaches(job, "cancelled")
        eventually(partial(_ended, pid), text=f"training of {job} ends")
    bed.reaches(waiting, "completed")
