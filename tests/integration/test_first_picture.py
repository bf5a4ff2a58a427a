"""The check of the demo's first picture, on small trees whose `make demo` is a stand-in."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The script, which takes ``tmp_path`` for the checkout."""
    monkeypatch.syspath_prepend(str(ROOT / ".ci"))
    script = importlib.import_module("first_picture")
    monkeypatch.setattr(script, "ROOT", tmp_path)
    yield script
    sys.modules.pop("first_picture")


def demo(tree: Path, *lines: str) -> None:
    """Write a repository in which `make demo` runs these lines of a shell."""
    (tree / "Makefile").write_text("demo:\n" + "".join(f"\t@{line}\n" for line in lines))
    subprocess.run(["git", "init", "-q", str(tree)], check=True)


def test_an_early_picture_passes_and_the_demo_ends_there(check: Any, tmp_path: Path) -> None:
    demo(tmp_path, "echo '(the first picture came after 12 s)'", "sleep 600")
    begin_s = time.monotonic()
    assert check.main() == 0
    assert time.monotonic() - begin_s < 300


def test_a_late_picture_fails(
    check: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo(tmp_path, "echo '(the first picture came after 91 s)'")
    assert check.main() == 1
    assert "after 91 of 90 s" in capsys.readouterr().out


def test_a_demo_without_a_picture_fails_with_its_last_lines(
    check: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo(tmp_path, "echo no network; exit 3")
    assert check.main() == 1
    output = capsys.readouterr().out
    assert "no network" in output
    assert "ended before its first picture" in output
