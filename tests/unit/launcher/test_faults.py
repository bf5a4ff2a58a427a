"""What the launcher cannot see it does not call gone or empty."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reshape_controller.live.own_faults import own_fault
from reshape_launcher.local import start
from reshape_launcher.local.launcher import LocalLauncher
from reshape_launcher.spec import LaunchError, ReleaseCheck
from reshape_sidecar import foreign, gpu
from reshape_sidecar.init import processes as proc
from tests.support import training_programs as programs
from tests.support.sidecar_bed import DEVICES, Bed, bed


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Bed]:
    with bed(tmp_path) as made:
        yield made


def too_many_files(*_: object, **__: object) -> Any:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_a_container_whose_file_cannot_be_read_now_is_not_called_gone(
    job: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.training(programs.PLAIN)
    with monkeypatch.context() as patch:
        patch.setattr(foreign, "read", too_many_files)
        with pytest.raises(OSError, match="open files"):
            job.status()
    assert job.status().running
    assert job.alive()


def test_a_release_is_not_verified_by_a_look_that_failed(
    job: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = job.training(programs.PLAIN)

    def names_cannot_be_read(path: str, mode: str) -> Any:
        if path.endswith("environ"):
            too_many_files()
        return open(path, mode)

    with monkeypatch.context() as patch:
        patch.setattr(proc, "open", names_cannot_be_read, raising=False)
        with pytest.raises(OSError, match="open files"):
            asyncio.run(job.launcher.check_release("job-1", 1, seen.generation, DEVICES))
    found = asyncio.run(job.launcher.check_release("job-1", 1, seen.generation, DEVICES))
    assert not found.empty


def test_a_folder_that_cannot_be_listed_is_no_empty_folder(
    job: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.training(programs.PLAIN)
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", too_many_files)
        with pytest.raises(OSError, match="open files"):
            asyncio.run(job.launcher.containers())
    assert job.status().running
    job.root.rename(job.root.with_name("away"))
    try:
        with pytest.raises(FileNotFoundError):
            asyncio.run(job.launcher.containers())
    finally:
        job.root.with_name("away").rename(job.root)
    assert asyncio.run(LocalLauncher(job.path / "never-used").containers()) == ()


def test_a_container_whose_files_are_lost_may_save_before_it_is_ended(job: Bed) -> None:
    job.training(programs.STEPS)
    moved = job.folder.run.with_name("run-moved")
    job.folder.run.rename(moved)
    job.remove(grace_s=20.0)
    assert job.left() == []
    assert list((job.path / "checkpoints").glob("step-*")) != []
    moved.rename(job.folder.run)


def test_removals_that_take_long_do_not_keep_releases_from_being_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    monkeypatch.setattr(LocalLauncher, "_remove", lambda *_: release.wait(60))

    async def scenario() -> ReleaseCheck:
        launcher = LocalLauncher(tmp_path)
        removals = [asyncio.create_task(launcher.remove("j", n, 30.0)) for n in range(40)]
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(20):
                assert await launcher.containers() == ()
                return await launcher.check_release("j", 99, 1, ())
        finally:
            release.set()
            await asyncio.gather(*removals)

    assert asyncio.run(scenario()).empty


def test_a_gpu_that_cannot_be_read_is_not_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "unreadable", lambda uuids: (("GPU-1", "GPU is lost"),))
    found = asyncio.run(LocalLauncher(tmp_path).check_release("j", 1, 1, ("GPU-0", "GPU-1")))
    assert not found.empty
    assert "GPU-1 cannot be read: GPU is lost" in found.reason


def test_what_has_ended_long_ago_costs_nothing_at_each_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        run = tmp_path / f"job-{number}" / "attempt-1" / "run"
        run.mkdir(parents=True)
        (run / "init.json").write_text('{"pid":1,"start_time":1,"boot_id":"before"}')
        os.utime(tmp_path / f"job-{number}", (1.0, 1.0))
    launcher = LocalLauncher(tmp_path)
    first = asyncio.run(launcher.containers())
    assert len(first) == 30
    looks: list[str] = []
    scandir = os.scandir

    def noted(path: str | Path) -> Iterator[os.DirEntry[str]]:
        looks.append(str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", noted)
    assert asyncio.run(launcher.containers()) == first
    assert [look for look in looks if look.startswith(str(tmp_path))] != []
    looks.clear()
    assert asyncio.run(launcher.containers()) == first
    assert looks == [str(tmp_path)]
    run = tmp_path / "job-3" / "attempt-2" / "run"
    run.mkdir(parents=True)
    (run / "init.json").write_text('{"pid":1,"start_time":1,"boot_id":"before"}')
    assert len(asyncio.run(launcher.containers())) == 31


def test_a_launch_that_the_disk_refuses_may_be_tried_again(job: Bed) -> None:
    job.root.mkdir(exist_ok=True)
    (job.root / "job-1").write_text("a file where a folder should be")
    try:
        with pytest.raises(LaunchError, match="make it writable") as caught:
            job.launch(job.spec(programs.PLAIN))
        assert caught.value.retryable
    finally:
        (job.root / "job-1").unlink()


def test_an_init_that_finds_no_room_for_its_files_is_a_fault_of_the_machine(
    job: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its spec still had room, so the launcher saw no error of its own."""

    def no_room(path: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(start, "_spawn", lambda *_: _ended())
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", no_room)
        with pytest.raises(LaunchError, match="No space left") as full:
            job.launch(job.spec(programs.PLAIN))
    assert own_fault(full.value) is not None
    with pytest.raises(LaunchError, match="did not start") as other:
        job.launch(job.spec(programs.PLAIN))
    assert own_fault(other.value) is None


def _ended() -> int:
    """The pid of a process that has ended."""
    with subprocess.Popen(("true",)) as child:
        child.wait()
    return child.pid
