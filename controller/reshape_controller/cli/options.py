"""Options that several commands share, and their meaning."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import re
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.output import Output
from reshape_gpu.client import Client
from reshape_gpu.config import Config, load
from reshape_gpu.settings import BY_NAME
from reshape_gpu.target import found
from reshape_gpu.values import KEY

KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY
Command = Callable[..., None]


def option(name: str, text: str = "") -> Any:
    """Return the option of a setting, for ``Annotated``; ``text``: another text for the help."""
    setting = BY_NAME[name]
    flags = [setting.flag, setting.short] if setting.short else [setting.flag]
    shown = text or setting.option_help
    return typer.Option(*flags, metavar=setting.metavar or None, help=shown)


HomeOption = Annotated[str | None, option("home")]
OutputOption = Annotated[str | None, option("output")]


def options_from(*names: str, **texts: str) -> Callable[[Command], Command]:
    """Return a decorator that gives a command an option for each named setting.

    The command's function takes the ``Config`` of these options first, then options and arguments
    of its own, and dataclasses whose fields are options. Those come first in the help, unless
    ``names`` has their place. ``texts``: texts for the help that differ from the table's, by the
    name of the setting.
    """

    def decorate(function: Command) -> Command:
        _, *rest = inspect.signature(function, eval_str=True).parameters.values()
        own = {parameter.name: parameter for parameter in rest}
        groups = {each.name: _fields(each.annotation) for each in rest if _is_group(each)}
        flags = [name for name in names if name not in own]
        found = []
        for parameter in rest:
            if parameter.name not in names:
                found += groups.get(parameter.name, [parameter])
        found += [own.get(name) or _parameter(name, texts.get(name, "")) for name in names]

        @functools.wraps(function)
        def command(**given: Any) -> None:
            config = load({name: given.pop(name, None) for name in flags})
            for name, fields in groups.items():
                values = {each.name: given.pop(each.name, each.default) for each in fields}
                given[name] = own[name].annotation(**values)
            function(config, **given)

        command.__annotations__ = {}
        keywords = [parameter.replace(kind=KEYWORD_ONLY) for parameter in found]
        vars(command)["__signature__"] = inspect.Signature(keywords)
        return command

    return decorate


def _is_group(parameter: inspect.Parameter) -> bool:
    return dataclasses.is_dataclass(parameter.annotation)


def _fields(group: type[Any]) -> list[inspect.Parameter]:
    """Return a parameter for each field of a dataclass of options."""
    types = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            each.name, KEYWORD_ONLY, default=each.default, annotation=types[each.name]
        )
        for each in dataclasses.fields(group)
    ]


def _parameter(name: str, text: str) -> inspect.Parameter:
    annotation: Any = Annotated[BY_NAME[name].kind | None, option(name, text)]
    return inspect.Parameter(name, KEYWORD_ONLY, default=None, annotation=annotation)


def one_of(what: str, listed_by: str, where: str) -> Callable[[str | None], str | None]:
    """Return a check of an argument, which becomes a part of a path of the API."""

    def check(key: str | None) -> str | None:
        if key is not None and not re.fullmatch(KEY, key):
            remedy = f"reshape {listed_by} lists the {what}s"
            raise failed(
                Exit.NOT_FOUND, f"{key!r:.80} is not a valid {what} name or id", where, remedy
            )
        return key

    return check


JobArgument = Annotated[
    str,
    typer.Argument(metavar="JOB", help="Job id or name.", callback=one_of("job", "get", "JOB")),
]


def settings(home: str | None = None, output: str | None = None) -> Config:
    """Return the settings of a client command. Raises CliError."""
    return load({"home": home, "output": output})


def form(config: Config) -> Output:
    return Output(config.text("output") or "table")


def client(config: Config) -> Client:
    """Return a client of the daemon of the configured URL, login or home. Raises ClientError."""
    return Client.at(found(config, os.environ))
