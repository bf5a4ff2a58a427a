"""A user by numbers: files are reached as that user in one thread, and as before afterwards."""

from __future__ import annotations

import ctypes
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reshape_launcher.local import users
from reshape_sidecar.agent import selfcheck
from reshape_sidecar.agent.spec import AttemptSpec, DeviceMode, Folder
from reshape_sidecar.user import User, files_as, run_as
from tests.support.user_bed import ADA, place

USER = User(ADA, users.NOBODY)


def spec_of(path: Path, command: tuple[str, ...], python: str | None = None) -> AttemptSpec:
    return AttemptSpec(
        job="j",
        attempt=1,
        name="j",
        command=command,
        code=str(path),
        checkpoints=str(path / "checkpoints"),
        coordinator_url="http://127.0.0.1:9",
        epoch=1,
        device_mode=DeviceMode.SIMULATED,
        python=python,
    )


def test_the_text_of_a_user_has_uid_gid_and_groups() -> None:
    for user in (User(7, 8), User(7, 8, (9, 10))):
        assert User.of(str(user)) == user
    assert str(User(7, 8, (9, 10))) == "7:8:9:10"


def test_files_are_reached_as_the_user_in_one_thread_alone() -> None:
    with place() as folder, ThreadPoolExecutor(1) as other:
        secret = folder / "secret"
        secret.write_text("sesame")
        secret.chmod(0o600)
        assert other.submit(secret.read_text).result() == "sesame"  # its thread starts here
        with files_as(USER):
            with pytest.raises(PermissionError):
                secret.read_text()
            assert other.submit(secret.read_text).result() == "sesame"
        assert secret.read_text() == "sesame"
        with pytest.raises(PermissionError):
            other.submit(run_as, USER, secret.read_text).result()


def test_the_signal_at_the_parents_death_outlives_a_look_as_the_user() -> None:
    with place():
        libc, death_signal = ctypes.CDLL(None), ctypes.c_int()
        libc.prctl(1, signal.SIGUSR1)
        try:
            with files_as(USER):
                pass
            libc.prctl(2, ctypes.byref(death_signal))
            assert death_signal.value == signal.SIGUSR1
        finally:
            libc.prctl(1, 0)


def test_a_work_folder_below_a_closed_folder_is_a_fault_that_names_it() -> None:
    with place() as path:
        closed = path / "closed"
        folder = Folder(closed / "attempt-1")
        folder.run.mkdir(parents=True)
        closed.chmod(0o700)
        spec = spec_of(path, ("python", "train.py"))
        fault = selfcheck.fault(spec, folder, os.environ, USER)
        assert fault is not None
        assert fault.startswith(f"folder {closed} is closed to the job's user (uid {ADA})")
        assert "--home" in fault


def test_a_program_that_is_no_python_needs_no_way_to_python() -> None:
    with place() as path:
        folder, closed = Folder(path / "attempt-1"), path / "closed"
        folder.run.mkdir(parents=True)
        (closed / "bin").mkdir(parents=True)
        closed.chmod(0o700)
        (path / "checkpoints").mkdir()
        os.chown(path / "checkpoints", ADA, users.NOBODY)
        python = str(closed / "bin" / "python")
        shell = spec_of(path, ("sh", "-c", "true"), python)
        assert selfcheck.fault(shell, folder, os.environ, USER) is None
        script = spec_of(path, ("python", "-c", "pass"), python)
        assert f"folder {closed} is closed" in str(
            selfcheck.fault(script, folder, os.environ, USER)
        )


def test_the_path_of_a_user_without_an_account_has_the_spare_home(tmp_path: Path) -> None:
    found = users.account_of(ADA, tmp_path)
    assert found.user == USER
    assert found.environment == {"HOME": str(tmp_path), "USER": str(ADA), "LOGNAME": str(ADA)}
    root = users.account_of(0, tmp_path)
    assert (root.name, root.user.uid, root.home) == ("root", 0, os.path.expanduser("~root"))
