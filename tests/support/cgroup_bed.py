"""Cgroups of tests: where they can be had, and a process in one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reshape_launcher.local.groups import Groups
from reshape_launcher.spec import Hold
from reshape_sidecar import cgroup


def base() -> Path:
    """Return a group for this test's groups; skip the test where the kernel gives none."""
    own = cgroup.own_group()
    found = Groups(Path("/a/trial/of/the/tests")).containment()
    if own is None or found.hold is Hold.MARKER:
        pytest.skip(f"this user has no cgroup of version 2 here: {found.reason}")
    return own


@contextmanager
def process_in(group: Path) -> Iterator[int]:
    """Yield the pid of a process in a group; without a marker, and no descendant of an init."""
    cgroup.make(group)
    with subprocess.Popen(["sleep", "600"], env={}) as process:
        try:
            cgroup.enter(group, process.pid)
            yield process.pid
        finally:
            process.kill()
