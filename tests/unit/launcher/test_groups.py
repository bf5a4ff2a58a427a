"""The launcher's groups: a release and a removal need them empty, whatever the marker says."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape_launcher.local import groups
from reshape_launcher.local.groups import ENV_BASE, GROUP_FILE, Groups
from reshape_launcher.local.launcher import LocalLauncher
from reshape_launcher.local.processes import KILL_WAIT_S
from reshape_launcher.spec import Hold, ReleaseCheck
from reshape_sidecar import cgroup
from reshape_sidecar.init import files
from reshape_sidecar.init import processes as proc
from tests.support import training_programs as programs
from tests.support.cgroup_bed import base, process_in
from tests.support.containment_bed import released
from tests.support.sidecar_bed import Bed, bed


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Bed]:
    base()
    with bed(tmp_path) as made:
        yield made


def group_of(job: Bed) -> Path:
    found = Groups(job.root).of(job.folder)
    assert found is not None
    return found


def check(job: Bed, generation: int) -> ReleaseCheck:
    return asyncio.run(job.launcher.check_release("job-1", 1, generation, ()))


def idle(job: Bed) -> None:
    """Launch and wait until no sweep is due, which would end what a test puts into a group."""
    job.initialised(programs.PLAIN)
    job.coordinator.until("swept", lambda o: o.stopped_generation == 1)


def ends(pid: int) -> bool:
    found = proc.read(pid)
    return found is None or found.zombie


def test_init_agent_and_training_are_in_groups_of_their_own(job: Bed) -> None:
    generation = job.training(programs.PLAIN).generation
    group = group_of(job)
    assert set(cgroup.pids(group / cgroup.INIT)) == {job.init().pid, job.agent()}
    assert cgroup.pids(cgroup.of_generation(group, generation)) == [job.process().pid]
    job.remove()
    assert not group.exists()


def test_a_release_waits_for_the_group_of_its_generation_while_init_lives(job: Bed) -> None:
    idle(job)
    with process_in(cgroup.of_generation(group_of(job), 1)) as pid:
        found = check(job, 1)
        assert not found.empty
        assert f"cgroup generation-1 has processes {pid} of job-1" in found.reason
        assert check(job, 0).empty, "the process is of a later start"
    assert check(job, 1).empty


@pytest.mark.parametrize("place", ["generation-1", "generation-1/below", "reshape-init"])
def test_once_init_is_gone_a_release_waits_for_the_whole_group(job: Bed, place: str) -> None:
    idle(job)
    group = group_of(job)
    with process_in(group / place) as pid:
        job.remove_init()
        assert not check(job, 9).empty
        assert job.gone().exit_code is None
        assert ends(pid)
    assert check(job, 9).empty
    assert not group.exists()


def test_a_removal_ends_its_own_attempt_alone(job: Bed, tmp_path: Path) -> None:
    idle(job)
    group = group_of(job)
    other = group.with_name("job-1.attempt-2")
    with process_in(group / "generation-1") as mine, process_in(other) as others:
        job.remove()
        assert ends(mine)
        assert not ends(others)
    cgroup.remove(other)


def test_all_groups_below_a_root_are_ended_also_without_a_note(job: Bed) -> None:
    idle(job)
    group = group_of(job)
    (job.folder.path / GROUP_FILE).unlink()
    with process_in(group / "generation-1") as pid:
        Groups(job.root).end_all(KILL_WAIT_S)
        assert ends(pid)
    assert not group.exists()


def test_a_controller_in_another_group_finds_the_group_of_a_living_attempt(
    job: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle(job)
    group = group_of(job)
    monkeypatch.setenv(ENV_BASE, "off")
    job.launcher = LocalLauncher(job.root)
    with process_in(group / "generation-1") as pid:
        assert not check(job, 1).empty
        job.remove()
        assert ends(pid)
    assert not group.exists()


@pytest.mark.parametrize("text", [None, "", '{"path":'], ids=["lost", "empty", "cut"])
def test_a_note_that_is_damaged_loses_no_group(job: Bed, text: str | None) -> None:
    idle(job)
    group = group_of(job)
    note = job.folder.path / GROUP_FILE
    note.unlink() if text is None else note.write_text(text)
    assert group_of(job) == group
    with process_in(group / "generation-1") as pid:
        assert not check(job, 1).empty
        job.remove()
        assert ends(pid)


def test_an_attempt_of_the_release_before_is_released_by_the_marker(
    job: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv(ENV_BASE, "off")
        job.launcher = LocalLauncher(job.root)
        before = job.training(programs.PLAIN)
    assert not (job.folder.path / GROUP_FILE).exists()
    job.launcher = LocalLauncher(job.root)
    assert Groups(job.root).of(job.folder) is None
    assert job.status().running
    assert job.process().pid == before.pid
    found = check(job, before.generation)
    assert (found.empty, "processes" in found.reason) == (False, True)
    job.remove()
    assert released(job, before.generation)


def test_groups_of_an_earlier_boot_hold_nothing(job: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    idle(job)
    monkeypatch.setattr(files, "boot_id", lambda: "another")
    assert Groups(job.root).of(job.folder) is None


def test_a_note_that_cannot_be_read_now_is_no_missing_note(
    job: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle(job)
    note = job.folder.path / GROUP_FILE
    note.unlink()
    note.mkdir()
    with pytest.raises(IsADirectoryError):
        check(job, 1)
    note.rmdir()


def test_without_a_group_the_marker_is_named_with_reason_and_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENV_BASE, str(tmp_path))
    found = Groups(tmp_path / "jobs").containment()
    assert found.hold is Hold.MARKER
    assert "has no cgroup.kill" in found.reason
    assert "Delegate=yes" in found.remedy
    monkeypatch.setenv(ENV_BASE, "off")
    found = Groups(tmp_path / "jobs").containment()
    assert (found.hold, found.reason, found.remedy) == (Hold.MARKER, "RESHAPE_CGROUP is off", "")


def test_a_program_sees_no_group_beside_its_own(job: Bed) -> None:
    if Groups(job.root).containment().hold is not Hold.CGROUP:
        pytest.skip("this user may not hide the other groups from a program")
    shows = (
        programs.READY
        + """
groups = [line for line in open("/proc/self/cgroup") if line.startswith("0::")]
points = [line.split()[4] for line in open("/proc/self/mountinfo") if " - cgroup2 " in line]
seen = [name for each in points for name in os.listdir(each) if os.path.isdir(each + "/" + name)]
open("seen", "w").write(repr((groups, seen)))
ready()
time.sleep(600)
"""
    )
    job.training(shows)
    assert (job.path / "code" / "seen").read_text() == "(['0::/\\n'], [])"
    assert os.path.isdir(group_of(job))


def test_the_group_of_a_trial_that_was_killed_is_removed_by_a_later_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parent = base() / f"reshape-trials-of-a-test-{os.getpid()}"
    killed = parent / f"{groups.TRIAL}1"
    cgroup.make(killed / "attempt")
    try:
        groups._remove_old_trials(parent)
        assert killed.is_dir(), "it may be under way"
        monkeypatch.setattr(groups, "TRIAL_OLD_S", -1.0)
        with process_in(killed / "attempt"):
            groups._remove_old_trials(parent)
            assert killed.is_dir(), "a process is in it"
        groups._remove_old_trials(parent)
        assert not killed.exists()
    finally:
        cgroup.remove(parent)
