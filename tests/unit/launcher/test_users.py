"""A job of another user: refused where that user cannot be had, and given no folder but its own."""

from __future__ import annotations

import asyncio
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from reshape_launcher.local import access, users
from reshape_launcher.local.launcher import LocalLauncher
from reshape_launcher.spec import DeviceMode, LaunchSpec, RecordRefused
from reshape_sidecar.user import User

SELF = User(os.geteuid(), os.getegid())


def spec(uid: int | None) -> LaunchSpec:
    return LaunchSpec(
        job="job-1",
        attempt=1,
        name="a",
        host="local",
        command=("python", "train.py"),
        code="/code",
        checkpoints="/checkpoints",
        coordinator_url="http://127.0.0.1:9",
        epoch=1,
        device_mode=DeviceMode.SIMULATED,
        uid=uid,
    )


def test_a_folder_of_a_record_is_a_folder_of_this_machine(tmp_path: Path) -> None:
    launcher = LocalLauncher(tmp_path / "jobs")
    for place, remedy in (("claim:data/a", "give a folder: /a/path"), ("data:3", "./data:3")):
        whole = spec(None)
        for odd in (
            replace(whole, code=place),
            replace(whole, dataset=place),
            replace(whole, checkpoints=place),
        ):
            (refusal,) = launcher.refusals(odd)
            assert getattr(odd, refusal.field) == place
            assert repr(place) in refusal.what
            assert remedy in refusal.remedy


def modes(folder: Path) -> dict[str, str]:
    return {path.name: f"{stat.S_IMODE(path.stat().st_mode):o}" for path in folder.iterdir()}


def test_a_daemon_that_cannot_be_the_user_refuses_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users, "problem", lambda: "the daemon runs as user 1000, not as root")
    launcher, other = LocalLauncher(tmp_path / "jobs"), os.geteuid() + 1
    assert launcher.refusals(spec(None)) == launcher.refusals(spec(os.geteuid())) == ()
    (refusal,) = launcher.refusals(spec(other))
    assert refusal.field == "user"
    assert f"uid {other}, and the daemon runs as user 1000" in refusal.what
    assert refusal.remedy == users.REMEDY
    with pytest.raises(RecordRefused):
        asyncio.run(launcher.launch(spec(other), "token"))
    assert not (tmp_path / "jobs").exists()


def test_an_open_home_shows_other_users_nothing_of_what_was_there(tmp_path: Path) -> None:
    home = tmp_path / "home"
    jobs = home / "jobs"
    for folder in (jobs / "before", home / "backups"):
        folder.mkdir(parents=True)
    for name in ("token", "store.sqlite"):
        (home / name).touch(0o644)
    home.chmod(0o700)
    access.open_roots((jobs,), home)
    assert modes(home) == {"jobs": "711", "backups": "700", "token": "600", "store.sqlite": "600"}
    assert modes(jobs) == {"before": "750"}
    assert modes(tmp_path) == {"home": "711"}


def test_a_home_that_was_open_is_opened_again_by_the_next_daemon(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "jobs").mkdir(parents=True)
    access.open_roots((home / "jobs",), home)
    home.chmod(0o700)  # as systemd does at a start
    assert asyncio.run(LocalLauncher(home / "jobs", home=home).containers()) == ()
    assert modes(tmp_path) == {"home": "711"}
    closed = tmp_path / "closed"
    (closed / "jobs").mkdir(parents=True, mode=0o700)
    closed.chmod(0o700)
    asyncio.run(LocalLauncher(closed / "jobs", home=closed).containers())
    assert modes(tmp_path)["closed"] == "700"


def test_users_pass_through_the_folders_of_all_hosts_and_nothing_else_is_open(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    jobs, other, third = home / "jobs", home / "hosts" / "local-1", home / "hosts" / "local-2"
    for folder in (jobs / "before", other / "before", home / "backups", home / "hosts" / "stray"):
        folder.mkdir(parents=True)
    access.open_roots((jobs, other, third), home)
    assert modes(home) == {"jobs": "711", "hosts": "711", "backups": "700"}
    assert modes(home / "hosts") == {"local-1": "711", "stray": "700"}, "the third is not there yet"
    assert modes(jobs) == modes(other) == {"before": "750"}


def test_a_user_is_given_the_folders_of_its_job_that_have_these_names_and_no_other(
    tmp_path: Path,
) -> None:
    own = tmp_path / "job-1"
    (own / "attempt-1").mkdir(parents=True)
    named = ("work", "checkpoints", "attempt-2", "..", "work/../../else", "../job-2/work")
    for name in named:
        access.give(own / name, own, SELF)
    assert sorted(path.name for path in own.iterdir()) == ["attempt-1", "checkpoints", "work"]
    assert [path.name for path in tmp_path.iterdir()] == ["job-1"]
