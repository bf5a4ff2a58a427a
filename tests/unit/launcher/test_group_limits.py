"""An attempt takes no more processes, memory and CPU than its limits, where the kernel has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape_launcher.local import groups, start
from reshape_launcher.local.groups import GROUP_FILE, GroupFile, Groups
from reshape_sidecar import cgroup, codec
from reshape_sidecar.cgroup import Limits
from reshape_sidecar.wire import Phase
from tests.support import training_programs as programs
from tests.support.cgroup_bed import base
from tests.support.sidecar_bed import Bed, bed

PIDS = 60
MEMORY_BYTES = 192 << 20
FORKS = (
    programs.READY
    + """
count = 0
while count < 500:
    try:
        if os.fork() == 0:
            time.sleep(600)
    except BlockingIOError:
        break
    count += 1
open("count", "w").write(str(count))
ready()
time.sleep(600)
"""
)
TAKES = programs.READY + "ready()\nall = [b'x' * (1 << 20) for _ in range(1000)]\ntime.sleep(600)\n"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Bed]:
    base()
    with bed(tmp_path) as made:
        yield made


def needs(job: Bed, controller: str) -> None:
    reason = Groups(job.root).containment().reason
    if controller not in reason.partition("limits of ")[2].partition("missing")[0]:
        pytest.skip(f"no limit of {controller} here: {reason}")


def places(job: Bed) -> dict[str, Path]:
    group = Groups(job.root).of(job.folder)
    assert group is not None
    return cgroup.places(group)


def test_a_fork_bomb_gets_no_more_processes_than_its_attempt_may_have(
    job: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs(job, "pids")
    monkeypatch.setattr(start, "PIDS_MAX", PIDS)
    job.training(FORKS)
    assert 10 < int((job.code / "count").read_text()) < PIDS
    job.remove()
    assert job.left() == []


def test_a_program_that_takes_more_memory_than_its_record_says_ends_for_that(job: Bed) -> None:
    needs(job, "memory")
    job.training(TAKES, memory_bytes=MEMORY_BYTES)
    seen = job.coordinator.until("crashed", lambda o: o.phase is Phase.CRASHED)
    assert seen.exit_code == 137
    assert "memory" in (seen.error or "")


def test_the_limit_of_cpu_time_is_that_of_the_record(job: Bed) -> None:
    needs(job, "cpu")
    job.initialised(programs.PLAIN, cpus=1.5)
    group = Groups(job.root).of(job.folder)
    assert group is not None
    place = places(job)["cpu"]
    if place == group:
        assert (place / "cpu.max").read_text() == "150000 100000\n"
    else:
        quota, period = (place / f"cpu.cfs_{name}_us" for name in ("quota", "period"))
        assert (quota.read_text(), period.read_text()) == ("150000\n", "100000\n")
        assert job.init().pid in {int(pid) for pid in (place / "cgroup.procs").read_text().split()}


def test_groups_that_limit_an_attempt_go_with_it(job: Bed) -> None:
    job.initialised(programs.PLAIN, cpus=1.0, memory_bytes=1 << 30)
    note = codec.loads(GroupFile, (job.folder.path / GROUP_FILE).read_bytes())
    made = [Path(each) for each in (note.path, *note.limited_by)]
    assert all(each.is_dir() for each in made)
    job.remove()
    assert not any(each.exists() or each.parent.exists() for each in made)


def test_a_controller_that_is_missing_is_named(job: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_trial", lambda *_: (True, ("pids",)))
    found = Groups(job.root).containment()
    assert found.reason.split("; ")[1] == "limits of pids, missing: memory, cpu"


def test_each_version_has_its_own_files() -> None:
    limits = Limits(10, 1000, 0.5)
    assert limits.texts(2) == {
        "pids": {"pids.max": "10"},
        "memory": {"memory.max": "1000"},
        "cpu": {"cpu.max": "50000 100000"},
    }
    assert limits.texts(1) == {
        "pids": {"pids.max": "10"},
        "memory": {"memory.limit_in_bytes": "1000"},
        "cpu": {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000"},
    }
    assert set(Limits(10).texts(2)) == {"pids"}


@pytest.mark.parametrize(
    ("line", "controller", "found"),
    [
        ("8:pids:/a", "pids", "/mnt/pids/a"),
        ("4:cpu,cpuacct:/a", "cpu", "/mnt/cpu/a"),
        ("4:cpu,cpuacct:/a", "memory", None),
    ],
)
def test_the_own_group_of_a_controller_of_version_1_is_found(
    tmp_path: Path, line: str, controller: str, found: str | None
) -> None:
    own, mounts = tmp_path / "cgroup", tmp_path / "mountinfo"
    own.write_text(f"{line}\n0::/b\n")
    mounts.write_text(
        "39 31 0:36 / /mnt/pids rw,relatime - cgroup cgroup rw,pids\n"
        "32 31 0:29 / /mnt/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
        "41 31 0:38 / /mnt/unified rw,relatime - cgroup2 cgroup2 rw\n"
    )
    expected = None if found is None else Path(found)
    assert cgroup.own_group(own, mounts, controller) == expected
    assert cgroup.own_group(own, mounts) == Path("/mnt/unified/b")
