"""Commands get the options of settings from the table of settings."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from reshape_controller.cli.options import options_from
from reshape_controller.cli.serve.doctor import doctor
from reshape_controller.cli.serve.up import up
from reshape_gpu.config import Config
from reshape_gpu.settings import SETTINGS


def command() -> typer.Typer:
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    @options_from("home", "loud", "gpus", "output", gpus="How many.")
    def show(
        config: Config,
        name: Annotated[str, typer.Argument()] = "none",
        loud: Annotated[bool, typer.Option("--loud")] = False,
    ) -> None:
        """Show them."""
        gpus, source = config.number("gpus"), config.source("gpus")
        typer.echo(f"{name} {loud} {gpus} from {source}, {config.text('output')}")

    return app


def test_the_options_reach_the_command_as_settings_and_its_own_beside_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RESHAPE_GPUS", "3")
    words = ["a", "--gpus", "4", "-o", "json", "--loud"]
    assert CliRunner().invoke(command(), words).stdout == "a True 4 from flag --gpus, json\n"
    shown = CliRunner().invoke(command(), ["a"]).stdout
    assert shown == "a False 3 from environment RESHAPE_GPUS, table\n"


def test_the_help_has_the_tables_texts_in_the_order_of_the_names() -> None:
    text = " ".join(CliRunner().invoke(command(), ["--help"]).stdout.split())
    parts = (
        "[name]",
        "Show them.",
        "--home DIR Folder of the daemon (store, token, job files); "
        "default: ~/.local/state/reshape.",
        "--loud",
        "--gpus <int> How many.",
        "-o, --output table|wide|json|jsonl|yaml Output format.",
    )
    found = [text.find(part) for part in parts]
    assert -1 not in found, text
    assert found == sorted(found)


@dataclasses.dataclass(frozen=True)
class Paint:
    colour: Annotated[str, typer.Option(help="Its colour.")] = "red"
    coats: Annotated[int, typer.Option("--coats", "-c", min=1)] = 2


def test_a_dataclass_of_options_is_filled_from_its_fields() -> None:
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    @options_from("output")
    def show(config: Config, *, wall: str = "north", paint: Paint) -> None:
        typer.echo(f"{wall} {paint.colour} {paint.coats} {config.text('output')}")

    run = CliRunner().invoke
    assert run(app, []).stdout == "north red 2 table\n"
    words = ["--colour", "blue", "-c", "3", "--wall", "south", "-o", "json"]
    assert run(app, words).stdout == "south blue 3 json\n"
    assert run(app, ["-c", "0"]).exit_code == 2, "a field has the checks of its option"
    assert "Its colour." in run(app, ["--help"]).stdout


def test_up_has_an_option_for_each_setting_of_a_daemon_and_doctor_the_same_options() -> None:
    names = set(inspect.signature(up).parameters)
    of_commands = {"output", "url", "context", "token_file", "ca", "prices"}
    assert names == {setting.name for setting in SETTINGS} - of_commands
    assert set(inspect.signature(doctor).parameters) - {"output"} == names


def test_a_misspelt_setting_is_found_when_the_command_is_defined() -> None:
    def show(config: Config) -> None: ...

    with pytest.raises(KeyError, match="hoem"):
        options_from("hoem")(show)
