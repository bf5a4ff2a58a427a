"""docs/cli.md names every command and every exit code."""

from __future__ import annotations

from pathlib import Path

from reshape_controller.cli.exits import Exit
from reshape_controller.cli.main import build

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "cli.md").read_text()


def test_every_command_is_documented() -> None:
    names = [command.name for command in build().registered_commands]
    for group in build().registered_groups:
        assert group.typer_instance is not None
        names += [f"{group.name} {c.name}" for c in group.typer_instance.registered_commands]
    assert len(names) > 14
    assert [name for name in names if f"`reshape {name}" not in TEXT] == []


def test_every_exit_code_is_documented() -> None:
    assert [code for code in Exit if f"\n| {code.value} | " not in TEXT] == []
