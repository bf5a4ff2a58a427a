"""The kernel's count of processes that it killed because memory ran out."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_sidecar import cgroup

VERSION_2 = ("0::{}\n", "memory.events", "low 0\noom 5\noom_kill 3\noom_group_kill 1\n")
VERSION_1 = ("5:cpu:/\n4:memory:{}\n0::/\n", "memory.oom_control", "under_oom 0\noom_kill 3\n")


@pytest.mark.parametrize(("line", "file", "text"), [VERSION_2, VERSION_1], ids=["v2", "v1"])
@pytest.mark.parametrize("mounted", ["own path", "as the root"])
def test_it_is_found_in_a_container_and_outside_of_one(
    tmp_path: Path, line: str, file: str, text: str, mounted: str
) -> None:
    own, cgroups = tmp_path / "cgroup", tmp_path / "mount"
    own.write_text(line.format("/pods/a:b/c"))
    memory = cgroups / "memory" if file == "memory.oom_control" else cgroups
    folder = memory / "pods/a:b/c" if mounted == "own path" else memory
    folder.mkdir(parents=True)
    (folder / file).write_text(text)
    assert cgroup.oom_kills(own, cgroups) == 3


def test_without_such_a_count_it_is_zero(tmp_path: Path) -> None:
    assert cgroup.oom_kills(tmp_path / "none", tmp_path) == 0
    own = tmp_path / "cgroup"
    own.write_text("0::/\n5:cpu:/\n")
    assert cgroup.oom_kills(own, tmp_path) == 0


def test_the_agent_counts_for_the_whole_attempt_and_not_for_its_own_group(tmp_path: Path) -> None:
    own = tmp_path / "cgroup"
    own.write_text(f"0::/user/attempt/{cgroup.INIT}\n")
    attempt = tmp_path / "unified/user/attempt"
    (attempt / cgroup.INIT).mkdir(parents=True)
    (attempt / cgroup.INIT / "memory.events").write_text("oom_kill 0\n")
    (attempt / "memory.events").write_text("oom_kill 2\n")
    assert cgroup.oom_kills(own, tmp_path) == 2


@pytest.mark.parametrize(
    ("line", "mount", "limit", "taken"),
    [
        ("0::/a/b\n", "", "memory.max", "memory.current"),
        ("0::/a/b\n", "unified", "memory.max", "memory.current"),
        ("4:memory:/a/b\n", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ],
    ids=["v2", "both", "v1"],
)
def test_the_memory_that_is_left_is_that_of_the_tightest_group_above(
    tmp_path: Path, line: str, mount: str, limit: str, taken: str
) -> None:
    own = tmp_path / "cgroup"
    own.write_text(line)
    folder = tmp_path / mount / "a/b"
    folder.mkdir(parents=True)
    assert cgroup.memory_left_bytes(own, tmp_path) is None
    for group, most, now in ((folder, 9000, 1000), (folder.parent, 4000, 3000)):
        (group / limit).write_text(f"{most}\n")
        (group / taken).write_text(f"{now}\n")
    (folder.parent / "memory.stat").write_text("anon 3\ninactive_file 500\n")
    assert cgroup.memory_left_bytes(own, tmp_path) == 1500
    (folder.parent / limit).write_text("max\n")
    assert cgroup.memory_left_bytes(own, tmp_path) == 8000
