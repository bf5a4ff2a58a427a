"""The command of a record: a list, or a text that is split without a shell. Pure.

Does: splits a text into arguments, and refuses one that needs a shell. It expands and runs
nothing.
"""

from __future__ import annotations

import re
import shlex

from pydantic_core import PydanticCustomError

from reshape_controller.records import limits

_QUOTED = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_OPERATOR = re.compile(r"\d*(?:[|&;]+|&?[<>]+.*)|[^;]*;|.*(?:\$\(|`).*")
_PYTHON = re.compile(r"(?:.*/)?python[\d.]*")
_PYTHON_WITH_VALUE = ("-W", "-X")
_SCRIPT_SUFFIXES = (".py", ".sh")


def split_command(value: object) -> object:
    """Split a text into arguments; return any other value as it is, for the next check."""
    if not isinstance(value, str):
        return value
    if len(value) > limits.ARGUMENTS_MAX * limits.TEXT_LENGTH_MAX:
        raise PydanticCustomError("command", "is too long", {"hint": "put it into a script"})
    for token in _QUOTED.sub("_", value).split():
        if _OPERATOR.fullmatch(token):
            raise PydanticCustomError(
                "command",
                "uses {token}, which needs a shell; Reshape starts commands without a shell",
                {
                    "token": token[:40],
                    "hint": "put it into a script of your own, or quote it if it is an argument",
                },
            )
    try:
        return shlex.split(value)
    except ValueError as error:
        raise PydanticCustomError(
            "command",
            "cannot be split into arguments: {reason}",
            {"reason": str(error).lower(), "hint": "close the quotation, or write a list"},
        ) from None


def script_of(command: tuple[str, ...]) -> str | None:
    """The file that the command runs; None if the command does not show it."""
    if not command:
        return None
    if _PYTHON.fullmatch(command[0]):
        return _python_script(command[1:])
    if "/" in command[0]:
        return command[0]
    return next((word for word in command[1:] if word.endswith(_SCRIPT_SUFFIXES)), None)


def module_of(command: tuple[str, ...]) -> str | None:
    """The module that the command runs by ``python -m``; None if it runs another way."""
    options = python_options(command)
    if options is None or command[options : options + 1] != ("-m",):
        return None
    return next(iter(command[options + 1 :]), None)


def python_options(command: tuple[str, ...]) -> int | None:
    """The number of words before the script or ``-m``; None if the command is no Python."""
    if not command or not _PYTHON.fullmatch(command[0]):
        return None
    index = 1
    while index < len(command) and command[index].startswith("-") and command[index] != "-m":
        index += 2 if command[index] in _PYTHON_WITH_VALUE else 1
    return index


def _python_script(arguments: tuple[str, ...]) -> str | None:
    words = iter(arguments)
    for word in words:
        if word in _PYTHON_WITH_VALUE:
            next(words, None)
        elif word.startswith("-"):
            # -m and -c (also at the end of a group such as -Im) name no file.
            if word == "-" or (word[-1:] in "mc" and not word.startswith("--")):
                return None
        else:
            return word
    return None
