"""Groups of the kernel: they are empty when it says so, and not before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape_sidecar import cgroup
from reshape_sidecar.cgroup import CgroupError
from reshape_sidecar.init import processes as proc
from reshape_sidecar.init.groups import NO_GROUPS, Groups
from tests.support.cgroup_bed import base, process_in


@pytest.fixture
def group() -> Iterator[Path]:
    made = cgroup.make(base() / f"reshape-test-{os.getpid()}")
    yield made
    assert cgroup.kill_until_empty(made, 10.0)
    assert not made.exists()


def test_a_group_is_empty_only_once_the_groups_below_it_are(group: Path) -> None:
    with process_in(group / "a" / "b") as pid:
        assert (group / cgroup.PROCS).read_text() == ""
        assert cgroup.populated(group)
        assert cgroup.pids(group) == [pid]
        cgroup.remove(group)
        assert group.exists(), "the kernel removes no group with a process in it"
    assert not cgroup.populated(group)


def test_a_kill_reaches_every_group_below(group: Path) -> None:
    with process_in(group / "a" / "b") as pid:
        assert cgroup.kill_until_empty(group / "a", 10.0)
        found = proc.read(pid)
        assert found is None or found.zombie
        assert not (group / "a").exists()


def test_a_group_that_was_removed_is_empty_and_an_unmounted_one_is_unknown(
    group: Path, tmp_path: Path
) -> None:
    assert not cgroup.populated(group / "removed")
    with pytest.raises(FileNotFoundError):
        cgroup.populated(tmp_path / "no hierarchy")
    with pytest.raises(FileNotFoundError):
        cgroup.busy(tmp_path / "no hierarchy", 1)


def test_a_group_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    with pytest.raises(CgroupError, match=r"has no cgroup\.kill; Linux 5\.14 or later"):
        cgroup.make(tmp_path / "no cgroup")
    with pytest.raises(CgroupError, match="cannot be made: Not a directory"):
        cgroup.make(Path("/dev/null/group"))


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("generation-1", True),
        ("generation-2", True),
        ("generation-3", False),
        ("successor-4", True),
        ("successor-5", False),
        (cgroup.INIT, False),
        (cgroup.ZYGOTE, False),
        ("another", True),
        ("generation-2/below", True),
        ("", True),
    ],
)
def test_a_release_waits_for_the_groups_of_earlier_starts(
    group: Path, name: str, counts: bool
) -> None:
    cgroup.make(group / "successor-5")
    with process_in(group / name):
        assert bool(cgroup.busy(group, 2)) is counts
    assert cgroup.busy(group, 2) == []


def test_an_adopted_successor_is_in_the_group_of_its_generation(group: Path) -> None:
    groups = Groups(group)
    waiting = groups.successor(3)
    assert waiting is not None
    with process_in(waiting) as pid:
        groups.adopt(3, 7)
        assert not waiting.exists()
        assert cgroup.pids(cgroup.of_generation(group, 7)) == [pid]
        assert cgroup.busy(group, 7) != []
        assert cgroup.busy(group, 6) == []


def test_a_sweep_empties_every_group_but_those_that_wait(group: Path) -> None:
    groups = Groups(group)
    assert groups.training(1) is not None
    assert groups.zygote() is not None
    assert groups.successor(2) is not None
    cgroup.make(group / cgroup.INIT)
    names = {each.name for each in groups.swept(zygote=True, successor=2)}
    assert names == {"generation-1"}
    names = {each.name for each in groups.swept(zygote=False, successor=None)}
    assert names == {"generation-1", "successor-2", "zygote"}
    assert NO_GROUPS.swept(zygote=False, successor=None) == []
    assert NO_GROUPS.training(1) is None
    assert NO_GROUPS.zygote() is None


@pytest.mark.parametrize(
    ("path", "root", "found"),
    [("/a/b", "/", "/mnt/a/b"), ("/a/b", "/a", "/mnt/b"), ("/b", "/a", None), ("/", "/", "/mnt")],
)
def test_the_own_group_is_found_below_the_root_of_its_mount(
    tmp_path: Path, path: str, root: str, found: str | None
) -> None:
    own, mounts = tmp_path / "cgroup", tmp_path / "mountinfo"
    own.write_text(f"4:memory:/x\n0::{path}\n")
    mounts.write_text(
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
        f"41 31 0:38 {root} /mnt rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
    )
    assert cgroup.own_group(own, mounts) == (None if found is None else Path(found))
    mounts.write_text("")
    assert cgroup.own_group(own, mounts) is None
