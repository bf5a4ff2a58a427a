"""The folders of old attempts are removed, and nothing else is."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from reshape_controller.core.model import JobState
from reshape_controller.live import retention
from reshape_controller.live.retention import remove_old
from reshape_controller.store.protocol import JobRow, Store
from reshape_launcher.spec import ContainerStatus, Launcher
from tests.support.store_values import job_row


class Rows:
    """The jobs of a store, found as a store does: by id, else by name."""

    def __init__(self, *rows: JobRow) -> None:
        self._rows = rows

    async def job(self, key: str) -> JobRow | None:
        return next((row for row in self._rows if key in (row.id, row.name)), None)


class Containers:
    def __init__(self, *running: str, fault: OSError | None = None) -> None:
        self._running, self._fault = running, fault

    async def containers(self) -> tuple[ContainerStatus, ...]:
        if self._fault is not None:
            raise self._fault
        ended = ContainerStatus("job-001", 1, running=False, exit_code=0)
        return (ended, *(ContainerStatus(job, 1, running=True) for job in self._running))


def ended(number: int, at_s: float, state: JobState = JobState.COMPLETED) -> JobRow:
    row = job_row(number, 1, state=state)
    assert row.job is not None
    return replace(row, job=replace(row.job, finished_at_s=at_s))


def attempt(root: Path, job: str, number: int = 1) -> Path:
    folder = root / job / f"attempt-{number}"
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "training.log").write_text("step 1\n")
    return folder


def remove(root: Path, rows: Rows, containers: Containers, before_s: float = 100.0) -> list[str]:
    store, launcher = cast(Store, rows), cast(Launcher, containers)
    return list(asyncio.run(remove_old((root,), store, launcher, before_s)))


def test_all_attempts_of_a_job_that_ended_before_the_time_are_removed(tmp_path: Path) -> None:
    attempt(tmp_path, "job-001"), attempt(tmp_path, "job-001", 2)
    later = attempt(tmp_path, "job-002")
    assert remove(tmp_path, Rows(ended(1, 99.0), ended(2, 100.0)), Containers()) == ["job-001"]
    assert not (tmp_path / "job-001").exists()
    assert later.exists()


def test_checkpoints_and_other_files_of_the_job_stay(tmp_path: Path) -> None:
    old = attempt(tmp_path, "job-001")
    checkpoint = old.parent / "checkpoints" / "step-5"
    checkpoint.mkdir(parents=True)
    assert remove(tmp_path, Rows(ended(1, 1.0)), Containers()) == ["job-001"]
    assert not old.exists()
    assert checkpoint.exists()


@pytest.mark.parametrize("state", [state for state in JobState if not state.terminal])
def test_a_job_that_has_not_ended_keeps_its_attempts(tmp_path: Path, state: JobState) -> None:
    folder = attempt(tmp_path, "job-001")
    assert remove(tmp_path, Rows(ended(1, 1.0, state)), Containers()) == []
    assert folder.exists()


def test_an_ended_job_with_a_container_keeps_its_attempts(tmp_path: Path) -> None:
    folder = attempt(tmp_path, "job-001")
    assert remove(tmp_path, Rows(ended(1, 1.0)), Containers("job-001")) == []
    assert folder.exists()


def test_a_folder_of_no_job_of_this_store_stays(tmp_path: Path) -> None:
    other, named = attempt(tmp_path, "job-077"), attempt(tmp_path, "name-1")
    assert remove(tmp_path, Rows(ended(1, 1.0)), Containers()) == []
    assert other.exists()
    assert named.exists(), "the name of an old job is no id"


def test_nothing_is_removed_while_containers_cannot_be_listed(tmp_path: Path) -> None:
    folder = attempt(tmp_path, "job-001")
    with pytest.raises(OSError, match="away"):
        remove(tmp_path, Rows(ended(1, 1.0)), Containers(fault=OSError("the cluster is away")))
    assert folder.exists()


def test_a_link_to_elsewhere_is_not_followed(tmp_path: Path) -> None:
    folder = attempt(tmp_path / "elsewhere", "job-001")
    root = tmp_path / "jobs"
    root.mkdir()
    (root / "job-001").symlink_to(folder.parent)
    assert remove(root, Rows(ended(1, 1.0)), Containers()) == []
    assert folder.exists()


def test_a_home_without_jobs_has_nothing_to_remove(tmp_path: Path) -> None:
    assert remove(tmp_path / "none", Rows(), Containers()) == []


def test_nothing_is_removed_while_the_clock_is_in_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, trusted = list[float](), [False]

    async def look(roots: object, store: object, launcher: object, before_s: float) -> tuple[()]:
        looked.append(before_s)
        return ()

    monkeypatch.setattr(retention, "remove_old", look)
    monkeypatch.setattr(retention, "LOOK_EVERY_S", 0.01)

    async def scenario() -> None:
        store, launcher = cast(Store, Rows()), cast(Launcher, Containers())
        watch = retention.watch((tmp_path,), store, launcher, 7.0, lambda: 9.0, lambda: trusted[0])
        task = asyncio.create_task(watch)
        await asyncio.sleep(0.1)
        assert looked == []
        trusted[0] = True
        while not looked:
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(scenario())
    assert looked[0] == 2.0
