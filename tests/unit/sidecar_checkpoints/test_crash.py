"""Property: a crash at any file operation of a publication leaves a valid newest checkpoint."""

from __future__ import annotations

import builtins
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from reshape_sidecar import checkpoints
from tests.support.gate import examples

OPERATIONS = ("mkdir", "rename", "replace", "fsync", "open", "listdir", "unlink", "rmdir")


class Crash(BaseException):
    """The process is gone: nothing after it runs, clean-up included."""


class Fuse:
    """Lets ``left`` file operations through, then every further one is a crash."""

    def __init__(self, left: int) -> None:
        self.left = left

    def guard(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any, **kwargs: Any) -> Any:
            if self.left <= 0:
                raise Crash
            self.left -= 1
            return real(*args, **kwargs)

        return guarded


def write(content: bytes) -> Callable[[Path], None]:
    def into(folder: Path) -> None:
        with open(folder / "state.bin", "wb") as file:
            file.write(content)

    return into


def publish(folder: Path, step: int, content: bytes) -> None:
    checkpoints.publish(folder, step=step, epoch=0, attempt=1, generation=1, write=write(content))


@settings(max_examples=examples(150), deadline=None)
@given(
    before=st.integers(min_value=0, max_value=3),
    again=st.booleans(),
    operations=st.integers(min_value=0, max_value=60),
)
def test_a_crash_at_any_point_of_publish_leaves_a_valid_newest(
    before: int, again: bool, operations: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checkpoints.claim(folder, 1)
        for step in range(1, before + 1):
            publish(folder, step, b"old %d" % step)
        step = before if again and before else before + 1
        fuse = Fuse(operations)
        crashed = False
        guarded: dict[str, Any] = {name: fuse.guard(getattr(os, name)) for name in OPERATIONS}
        with (
            mock.patch.multiple(os, **guarded),
            mock.patch.object(builtins, "open", fuse.guard(open)),
            mock.patch.object(shutil, "rmtree", fuse.guard(shutil.rmtree)),
        ):
            try:
                publish(folder, step, b"new %d" % step)
            except Crash:
                crashed = True
        found = checkpoints.newest(folder)
        contents = (found.path / "state.bin").read_bytes() if found else None
        old = b"old %d" % before if before else None
        assert contents in (old, b"new %d" % step)
        if not crashed:
            assert contents == b"new %d" % step
        publish(folder, step + 1, b"after")
        found = checkpoints.newest(folder)
        assert found is not None
        assert (found.path / "state.bin").read_bytes() == b"after"
        left = [path.name for path in folder.iterdir() if path.name.startswith(".tmp")]
        assert left == []
