"""Sweeps whose command is interrupted or killed, or whose worker is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.daemon_bed import PROGRAM, ROOT, SOURCES, eventually, start_of


def workers_of(pid: int) -> dict[int, int | None]:
    """Its worker processes, with their start times."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    commands = {int(child): Path(f"/proc/{child}/cmdline").read_bytes() for child in children}
    return {child: start_of(child) for child in commands if b"spawn_main" in commands[child]}


@pytest.fixture
def sweep(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A comparison of two workers that takes its time, and has kept a replay."""
    command = [sys.executable, "-m", PROGRAM, "compare", "-w", "two", "--jobs", "6"]
    command += ["--seeds", "1000", "--workers", "2", "--out", str(tmp_path)]
    path = ":".join(str(ROOT / name) for name in SOURCES)
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        process_group=0,
    ) as process:
        eventually(lambda: any(tmp_path.rglob("*.json")), text="a replay is kept")
        yield process
        process.kill()


def has_ended(pid: int, start: int | None) -> bool:
    return start_of(pid) != start


def test_no_worker_outlives_a_command_that_was_killed(sweep: subprocess.Popen[str]) -> None:
    workers = workers_of(sweep.pid)
    assert len(workers) == 2
    sweep.kill()
    sweep.wait()
    for pid, start in workers.items():
        eventually(partial(has_ended, pid, start), text=f"{pid} has ended")


def test_a_worker_that_was_killed_is_told_as_such(sweep: subprocess.Popen[str]) -> None:
    os.kill(next(iter(workers_of(sweep.pid))), signal.SIGKILL)
    _, said = sweep.communicate()
    assert sweep.returncode == 1
    assert "a worker process was killed" in said
    assert "fewer --workers" in said


def test_ctrl_c_ends_a_sweep_at_once_and_says_what_is_kept(
    sweep: subprocess.Popen[str], tmp_path: Path
) -> None:
    eventually(lambda: len(list(tmp_path.rglob("*.json"))) > 20, text="some replays are kept")
    workers = workers_of(sweep.pid)
    os.killpg(sweep.pid, signal.SIGINT)  # as a terminal does: the workers get it too
    _, said = sweep.communicate(timeout=30)
    assert sweep.returncode == 130
    (line,) = said.splitlines()
    assert re.fullmatch(r"interrupted: \d+ of 6000 replays are kept in .*resumes from there", line)
    assert all(has_ended(pid, start) for pid, start in workers.items())
