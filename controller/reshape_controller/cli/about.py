"""Commands about the program itself: config show, version, --version. They need no daemon."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import RenderableType

from reshape_controller.cli.options import HomeOption, OutputOption, form, settings
from reshape_controller.cli.output import emit, grid
from reshape_controller.http.openapi import version as version_of
from reshape_gpu.config import SettingValue, config_file

config_app = typer.Typer(help="Settings of the daemon and the commands.", no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class ConfigView:
    """All settings, and the configuration file."""

    file: str
    settings: tuple[SettingValue, ...]


@dataclass(frozen=True, slots=True)
class Version:
    version: str
    python: str


@config_app.command("show")
def show(home: HomeOption = None, output: OutputOption = None) -> None:
    """Show every setting, its value, and where the value comes from."""
    config = settings(home, output)
    shown = ConfigView(str(config_file(os.environ)[0]), config.all())
    emit(shown, form(config), lambda: _table(shown))


def version(output: OutputOption = None) -> None:
    """Show the version."""
    config = settings(None, output)
    found = Version(version_of(), platform.python_version())
    emit(found, form(config), lambda: f"reshape {found.version} (Python {found.python})")


def _show_version(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", is_eager=True, callback=_show_version
        ),
    ] = False,
) -> None:
    """The command line without a command."""


def _table(shown: ConfigView) -> RenderableType:
    table = grid("SETTING", "VALUE", "FROM", rest="FROM")
    for found in shown.settings:
        table.add_row(found.name, "-" if found.value is None else str(found.value), found.source)
    return table
