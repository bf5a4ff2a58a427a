"""Exit codes, and the error that ends a command."""

from __future__ import annotations

from enum import IntEnum

from reshape_gpu.errors import (
    ClientError,
    NotFound,
    Problem,
    Refused,
    SettingError,
    Unreachable,
)


class Exit(IntEnum):
    """Exit codes, documented in docs/cli.md; scripts rely on them."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    REJECTED = 5


class CliError(ClientError):
    """The command failed. ``code`` may be a job's own."""

    def __init__(self, code: Exit | int, *problems: Problem) -> None:
        super().__init__(*problems)
        self.code = code


_CODES: dict[type[ClientError], Exit] = {
    SettingError: Exit.USAGE,
    NotFound: Exit.NOT_FOUND,
    Unreachable: Exit.UNREACHABLE,
    Refused: Exit.REJECTED,
}


def code_of(error: ClientError) -> Exit | int:
    """Return the exit code of a command that an error ends."""
    if isinstance(error, CliError):
        return error.code
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), Exit.FAILED)


def failed(code: Exit | int, what: str, where: str = "", remedy: str = "") -> CliError:
    """Return a CliError with one problem."""
    return CliError(code, Problem(what, where, remedy))
