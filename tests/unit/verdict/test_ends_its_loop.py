"""A call is the last thing that its loop does, or the script goes on behind it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from reshape_sidecar.verdict.carried import ends_its_loop

LAST = """
for step in range(2):
    if step:
        pass
    done()
"""
LAST_OF_A_BRANCH = """
while not found:
    with opened():
        if not found:
            done()
        else:
            pass
"""
GOES_ON = """
for step in range(2):
    done()
    print(step)
"""
GOES_ON_BEHIND_A_BRANCH = """
for step in range(2):
    if not step:
        done()
    print(step)
"""
OUTER = """
for epoch in range(2):
    for step in range(2):
        done()
    print(epoch)
"""
NO_LOOP = """
def step():
    done()
step()
"""


@pytest.mark.parametrize(
    ("script", "ends"),
    [
        (LAST, True),
        (LAST_OF_A_BRANCH, True),
        (GOES_ON, False),
        (GOES_ON_BEHIND_A_BRANCH, False),
        (OUTER, True),
        (NO_LOOP, False),
    ],
)
def test_a_call_ends_its_loop_or_not(script: str, ends: bool, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(script)
    found: list[bool] = []

    def done() -> None:
        frame = sys._getframe(1)
        assert isinstance(frame, FrameType)
        found.append(ends_its_loop(frame))

    class Opened:
        def __enter__(self) -> None: ...
        def __exit__(self, *_: Any) -> None: ...

    exec(compile(script, str(path), "exec"), {"done": done, "opened": Opened, "found": found})
    assert set(found) == {ends}
