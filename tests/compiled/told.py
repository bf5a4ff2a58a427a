"""What is compiled against what it was compiled from. ``make test-compiled`` runs it.

Does: compares the values' portraits, and whole replays, of the compiled code and of the sources.
Never: runs by itself: without the compiled code there is nothing to compare. State: none.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reshape_controller.core.limits import Limits
from reshape_controller.core.model import Gpu, GpuId, HostId
from tests.compiled.plugin import ROOT, WHEEL, names
from tests.unit.native import portrait

COMPILED = os.environ["PYTHONPATH"]
SOURCES = ":".join(str((ROOT / package).parent) for package in WHEEL["packages"])
REPLAYED = Path(__file__).with_name("replayed.py")


def said(home: str, *command: str) -> list[str]:
    """What a command says with the packages of a folder."""
    env = os.environ | {"PYTHONPATH": home, "PYTHONHASHSEED": "0"}
    words = [sys.executable, *command]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_value_says_the_same_of_itself() -> None:
    command = (str(Path(portrait.__file__)), *names())
    lines = said(SOURCES, *command)
    pairs = zip(lines, said(COMPILED, *command), strict=True)
    assert [pair for pair in pairs if pair[0] != pair[1]] == []
    assert sum(line.startswith("class ") for line in lines) > 80


def test_a_frozen_value_refuses_changes() -> None:
    limits = Limits()
    with pytest.raises(AttributeError, match="cannot assign to field 'verify_s'"):
        limits.verify_s = 1.0  # type: ignore[misc]
    with pytest.raises(AttributeError, match="cannot delete field 'verify_s'"):
        del limits.verify_s
    assert limits == Limits()


def test_a_value_of_another_type_than_was_said_is_refused() -> None:
    with pytest.raises(TypeError):
        Gpu(GpuId("gpu-0"), HostId("host"), "first")  # type: ignore[arg-type]


def test_replays_say_the_same_word_by_word() -> None:
    lines = said(SOURCES, str(REPLAYED))
    pairs = zip(lines, said(COMPILED, str(REPLAYED)), strict=True)
    assert [pair for pair in pairs if pair[0] != pair[1]] == []
    assert len(lines) > 5000
