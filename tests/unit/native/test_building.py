"""What the build looks for before it begins, and what it asks of the compiler."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from hatch_build import CannotCompile, CompiledWheel
from native import compiling, toolchain
from tests.compiled.plugin import HOOK, ROOT


def test_without_a_compiler_the_remedy_is_named(tmp_path: Path) -> None:
    (tmp_path / "Python.h").touch()
    said = toolchain.missing("no-such-compiler -pthread", tmp_path)
    assert "install the C compiler 'no-such-compiler -pthread' (Debian: gcc" in said
    assert "make setup" in said
    assert "Python.h" not in said


def test_without_headers_the_remedy_is_named(tmp_path: Path) -> None:
    said = toolchain.missing(sys.executable, tmp_path)
    assert f"install {tmp_path}/Python.h (Debian: python3." in said
    assert "compiler" not in said


def test_where_both_are_there_nothing_is_missing(tmp_path: Path) -> None:
    (tmp_path / "Python.h").touch()
    assert toolchain.missing(f"{sys.executable} -pthread", tmp_path) == ""


def test_what_is_missing_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert toolchain.main() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("make compiled: to compile, install the C compiler 'no-such-compiler'")


def test_the_compiler_may_not_make_one_operation_of_two() -> None:
    """Then figures would differ from those of the interpreted code in their last digit."""
    assert "-ffp-contract=off" in compiling.FLAGS
    assert not {"-ffast-math", "-Ofast", "-march=native"} & {*compiling.FLAGS}


def test_an_editable_installation_is_refused(tmp_path: Path) -> None:
    builder = WheelBuilder(str(ROOT))
    hook = CompiledWheel(
        str(ROOT), HOOK, builder.config, builder.metadata, str(tmp_path), "wheel", builder.app
    )
    with pytest.raises(CannotCompile, match="unset HATCH_BUILD_HOOK_ENABLE_CUSTOM"):
        hook.initialize("editable", {})


def test_the_usual_wheel_is_pure() -> None:
    assert HOOK["enable-by-default"] is False
