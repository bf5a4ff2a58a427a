"""The local launcher judges by pid, start time and boot, and by what /proc shows."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reshape_launcher.local import processes
from reshape_launcher.local.launcher import LocalLauncher
from reshape_launcher.spec import ContainerStatus
from reshape_sidecar import codec, gpu
from reshape_sidecar.agent.spec import Folder
from reshape_sidecar.init import files
from reshape_sidecar.init import processes as proc
from reshape_sidecar.init.processes import Marker
from reshape_sidecar.init.values import EXIT_FILE, INIT_FILE, ExitFile, InitFile
from reshape_sidecar.wire import GpuUse


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "job-1" / "attempt-1")
    made.run.mkdir(parents=True)
    return made


def marker(folder: Folder) -> Marker:
    return Marker("job-1", 1, str(folder.socket))


@pytest.fixture
def stray(folder: Folder) -> Iterator[subprocess.Popen[bytes]]:
    """A training process of generation 4 whose init is gone."""
    env = marker(folder).environment() | {"RESHAPE_GENERATION": "4"}
    command = [sys.executable, "-c", "print('up', flush=True); import time; time.sleep(600)"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        yield child
        child.kill()


def init_is(folder: Folder, pid: int, start_time: int, boot_id: str | None = None) -> None:
    said = InitFile(pid, start_time, boot_id or files.boot_id())
    (folder.run / INIT_FILE).write_text(codec.dumps(said))


def containers(root: Path) -> tuple[ContainerStatus, ...]:
    return asyncio.run(LocalLauncher(root).containers())


def test_a_container_whose_init_has_pid_and_start_time_runs(tmp_path: Path, folder: Folder) -> None:
    init_is(folder, os.getpid(), proc.start_time(os.getpid()))
    (status,) = containers(tmp_path)
    assert (status.job, status.attempt, status.running) == ("job-1", 1, True)


@pytest.mark.parametrize("other", ["start time", "boot", "pid"])
def test_a_reused_pid_is_not_the_container(tmp_path: Path, folder: Folder, other: str) -> None:
    start = proc.start_time(os.getpid())
    if other == "start time":
        init_is(folder, os.getpid(), start + 1)
    elif other == "boot":
        init_is(folder, os.getpid(), start, "another-boot")
    else:
        init_is(folder, 2**22 + 1, start)
    (status,) = containers(tmp_path)
    assert not status.running
    assert status.exit_code is None


def test_an_exit_sentinel_says_how_it_ended(tmp_path: Path, folder: Folder) -> None:
    init_is(folder, 1, 1, "another-boot")
    (folder.run / EXIT_FILE).write_text(codec.dumps(ExitFile(0, "ended on request")))
    (status,) = containers(tmp_path)
    assert status == ContainerStatus("job-1", 1, False, 0, "ended on request")


def test_an_attempt_that_never_came_up_is_no_container(tmp_path: Path, folder: Folder) -> None:
    assert containers(tmp_path) == ()


def test_torn_files_are_no_container_that_runs(tmp_path: Path, folder: Folder) -> None:
    (folder.run / INIT_FILE).write_text('{"pid": 1')
    (folder.run / EXIT_FILE).write_text("")
    (status,) = containers(tmp_path)
    assert not status.running


def test_what_a_dead_init_left_behind_is_killed_before_it_is_reported_gone(
    tmp_path: Path, folder: Folder, stray: subprocess.Popen[bytes]
) -> None:
    init_is(folder, 1, 1, "another-boot")
    (status,) = containers(tmp_path)
    assert not status.running
    assert stray.wait(30) == -9


def test_what_would_not_die_keeps_the_attempt_running(
    tmp_path: Path,
    folder: Folder,
    stray: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    init_is(folder, 1, 1, "another-boot")
    monkeypatch.setattr(proc, "send_signal", lambda *_: False)
    monkeypatch.setattr(processes, "KILL_WAIT_S", 0.1)
    monkeypatch.setattr(processes.kill, "__defaults__", (0.1,))
    (status,) = containers(tmp_path)
    assert status.running
    assert str(stray.pid) in status.reason


def test_processes_of_other_jobs_attempts_and_roots_are_left_alone(
    tmp_path: Path, folder: Folder, stray: subprocess.Popen[bytes]
) -> None:
    mine = marker(folder)
    others = [
        replace(mine, job="job-2"),
        replace(mine, attempt=2),
        replace(mine, socket="/elsewhere/agent.sock"),
    ]
    for other in others:
        assert processes.kill(other) == []
    assert stray.poll() is None
    assert [entry.proc.pid for entry in processes.living((mine,))[mine]] == [stray.pid]


@pytest.mark.parametrize(("generation", "empty"), [(3, True), (4, False), (9, False)])
def test_a_release_looks_at_processes_up_to_its_generation(
    tmp_path: Path,
    folder: Folder,
    stray: subprocess.Popen[bytes],
    generation: int,
    empty: bool,
) -> None:
    launcher = LocalLauncher(tmp_path)
    check = asyncio.run(launcher.check_release("job-1", 1, generation, ()))
    assert check.empty is empty
    assert empty or str(stray.pid) in check.reason


def test_a_gpu_that_still_holds_memory_is_not_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = {"GPU-a": gpu.FREE_MEMORY_BYTES, "GPU-b": gpu.FREE_MEMORY_BYTES + 1}
    monkeypatch.setattr(
        gpu, "use", lambda uuids: tuple(GpuUse(uuid, used[uuid], 80 << 30) for uuid in uuids)
    )
    launcher = LocalLauncher(tmp_path)
    assert asyncio.run(launcher.check_release("job-1", 1, 1, ("GPU-a",))).empty
    check = asyncio.run(launcher.check_release("job-1", 1, 1, ("GPU-a", "GPU-b")))
    assert not check.empty
    assert check.reason == "GPU GPU-b still has 512 MiB in use"


def test_the_environment_of_a_container_has_nothing_of_another_reshape(tmp_path: Path) -> None:
    launcher = LocalLauncher(tmp_path, {"PATH": "/bin", "RESHAPE_GENERATION": "3"})
    assert launcher.environment == {"PATH": "/bin"}
