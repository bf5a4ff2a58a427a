"""The control groups of a node, on the kernel's own hierarchies of both versions; no kubelet."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes import cgroups, layout
from tests.kubernetes.layout import Node
from tests.kubernetes.running import eventually, start_time

pytestmark = pytest.mark.kubernetes
NODE = Node(9)
"""No cluster has so many."""
WRITERS = """
import os, sys, time
folder, children, *groups = sys.argv[1:]
for group in groups:
    open(f"{group}/cgroup.procs", "w").write(str(os.getpid()))
if int(children) and os.fork() == 0:
    os.setsid()
while True:
    with open(f"{folder}/{os.getpid()}", "a") as file:
        file.write(".")
    time.sleep(0.01)
"""
"""Joins groups, has a child in a session of its own; each lengthens a file named by its pid."""


@pytest.fixture(params=[1, 2])
def groups(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """The groups of the daemons of a node that nothing else has."""
    both = layout.CGROUPS / "unified"
    if request.param == 2 and both.is_dir():
        monkeypatch.setattr(layout, "CGROUPS", both)
    version = 2 if (layout.CGROUPS / "cgroup.controllers").exists() else 1
    if version != request.param or not layout.CGROUPS.is_dir():
        pytest.skip(f"this machine has no cgroups of version {request.param}")
    try:
        made = cgroups.make(NODE)
    except PermissionError:
        pytest.skip("cgroups need root; a cluster of KUBECONFIG needs neither")
    yield made
    cgroups.kill(NODE)
    cgroups.remove(NODE)


@pytest.fixture
def family(groups: list[Path], tmp_path: Path) -> Iterator[Path]:
    """The folder in which each of two processes of the node has a file that grows."""
    folder = tmp_path / "family"
    child = start(folder, 1, groups)
    try:
        eventually("both processes", lambda: len(sizes(folder)) == 2, 60.0)
        yield folder
    finally:
        cgroups.kill(NODE)
        child.wait(60.0)


@pytest.fixture
def clock(tmp_path: Path) -> Iterator[Path]:
    """The folder of a process that does the same and is not of the node."""
    folder = tmp_path / "clock"
    child = start(folder, 0, [])
    try:
        eventually("the clock", lambda: sizes(folder), 60.0)
        yield folder
    finally:
        child.kill()
        child.wait(60.0)


def start(folder: Path, children: int, groups: list[Path]) -> subprocess.Popen[bytes]:
    folder.mkdir()
    words = [str(folder), str(children), *(str(group) for group in groups)]
    return subprocess.Popen([sys.executable, "-c", WRITERS, *words])


def sizes(folder: Path) -> list[int]:
    """How much each process has done."""
    return [file.stat().st_size for file in sorted(folder.iterdir())]


def go_on(folder: Path) -> bool:
    """Every process there has done much more in the end."""
    least = [size + 50 for size in sizes(folder)]
    return eventually(
        "all go on", lambda: all(a >= b for a, b in zip(sizes(folder), least, strict=True)), 60.0
    )


@pytest.mark.gate
def test_processes_and_what_they_start_are_the_node_s_whatever_their_session(family: Path) -> None:
    assert cgroups.pids(NODE) == sorted(int(file.name) for file in family.iterdir())
    assert cgroups.groups(NODE)


def test_a_frozen_node_does_nothing_until_it_is_thawed(family: Path, clock: Path) -> None:
    cgroups.freeze(NODE)
    before = sizes(family)
    assert go_on(clock)
    assert sizes(family) == before
    cgroups.thaw(NODE)
    assert go_on(family)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_killed_node_has_no_process_left_even_if_it_was_frozen(
    family: Path, frozen: bool
) -> None:
    members = cgroups.pids(NODE)
    assert len(members) == 2
    if frozen:
        cgroups.freeze(NODE)
    cgroups.kill(NODE)
    assert cgroups.pids(NODE) == []
    assert [pid for pid in members if start_time(pid) is not None] == []


def test_a_removed_node_has_no_group_left_and_may_be_removed_again(groups: list[Path]) -> None:
    (groups[0] / "pod" / "container").mkdir(parents=True)
    cgroups.remove(NODE)
    assert cgroups.groups(NODE) == []
    cgroups.remove(NODE)
    cgroups.make(NODE)
