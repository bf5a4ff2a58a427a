"""Exit codes, and the one shape of every error that a user sees: what, where, remedy.

Never: a traceback. State: none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Exit(IntEnum):
    """Documented in docs/cli.md; scripts rely on them."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    REJECTED = 5


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: what, where it is, and what to do about it."""

    what: str
    where: str = ""
    remedy: str = ""

    def lines(self) -> list[str]:
        found = [self.what]
        if self.where:
            found.append(f"  where:  {self.where}")
        if self.remedy:
            found.append(f"  remedy: {self.remedy}")
        return found


class CliError(Exception):
    """The command cannot do what it was asked. ``problems`` has at least one entry."""

    def __init__(self, code: Exit, *problems: Problem) -> None:
        super().__init__("; ".join(problem.what for problem in problems))
        self.code = code
        self.problems = problems

    def text(self) -> str:
        """What goes to stderr."""
        lines: list[str] = []
        for problem in self.problems:
            first, *rest = problem.lines()
            lines += [f"error: {first}", *rest]
        return "\n".join(lines)


def failed(code: Exit, what: str, where: str = "", remedy: str = "") -> CliError:
    """A CliError with one problem."""
    return CliError(code, Problem(what, where, remedy))
