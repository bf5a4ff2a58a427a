"""A marker in the environment of another user's process makes it no process of the attempt."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reshape_launcher.local import processes as launchers
from reshape_sidecar.contract import ENV_GENERATION
from reshape_sidecar.init.look import processes_up_to
from reshape_sidecar.init.processes import (
    Marker,
    alive,
    marked_by,
    marked_processes,
    snapshot,
    start_time,
)

ADA, BOB = 40_001, 40_002
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to start another user's")

SLEEPS = ("/bin/sh", "-c", "echo up; exec sleep 600")
HIDES = "import ctypes, time; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); print(1); time.sleep(600)"
"""It forbids core dumps, so that its files in /proc are root's."""
PYTHON = "/usr/bin/python3"
"""One that every user may run."""


@pytest.fixture
def marker(tmp_path: Path) -> Marker:
    """Of an attempt whose training ADA has: init has made its log."""
    for folder in ("run", "logs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "logs" / "init.log").touch()
    (tmp_path / "logs" / "training.log").touch()
    os.chown(tmp_path / "logs" / "training.log", ADA, -1)
    return Marker("victim-1a2b3c4d", 1, str(tmp_path / "run" / "agent.sock"))


@contextmanager
def sleeper(marker: Marker, uid: int, command: tuple[str, ...] = SLEEPS) -> Iterator[int]:
    env = {**marker.environment(), ENV_GENERATION: "1"}
    with subprocess.Popen(
        command, env=env, user=uid, group=65534, extra_groups=(), cwd="/", stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


@pytest.mark.parametrize("command", [SLEEPS, (PYTHON, "-u", "-c", HIDES)], ids=["open", "hides"])
def test_a_process_of_another_user_keeps_no_gpu_and_is_not_ended(
    marker: Marker, command: tuple[str, ...]
) -> None:
    if not Path(command[0]).exists():
        pytest.skip(f"no {command[0]} here")
    with sleeper(marker, BOB, command) as pid:
        assert pid in {entry.proc.pid for entry in marked_processes(snapshot())}
        assert marked_by(marker, snapshot()) == []
        assert processes_up_to(marker, 9, Path(marker.socket).parent) == []
        assert launchers.living((marker,)) == {marker: []}
        assert launchers.kill(marker, 1.0) == []
        assert alive(pid, start_time(pid))


@pytest.mark.parametrize("uid", [0, ADA])
def test_a_process_of_the_attempts_users_counts_and_is_ended(marker: Marker, uid: int) -> None:
    with sleeper(marker, uid) as pid:
        run = Path(marker.socket).parent
        assert processes_up_to(marker, 9, run) == [pid]
        assert [entry.proc.pid for entry in launchers.living((marker,))[marker]] == [pid]
        assert launchers.kill(marker, 5.0) == []
