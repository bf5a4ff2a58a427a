"""The kernel's count of processes that it killed because memory ran out."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_sidecar.agent import actions

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
    assert actions.oom_kills(own, cgroups) == 3


def test_without_such_a_count_it_is_zero(tmp_path: Path) -> None:
    assert actions.oom_kills(tmp_path / "none", tmp_path) == 0
    own = tmp_path / "cgroup"
    own.write_text("0::/\n5:cpu:/\n")
    assert actions.oom_kills(own, tmp_path) == 0
