"""Exit codes, and the form of every error for users: what is wrong, where, and the remedy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes, documented in docs/cli.md; scripts rely on them."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    REJECTED = 5


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem: what is wrong, where, and the remedy."""

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
    """The command failed. ``problems`` has at least one entry; ``code`` may be a job's own."""

    def __init__(self, code: Exit | int, *problems: Problem) -> None:
        super().__init__("; ".join(problem.what for problem in problems))
        self.code = code
        self.problems = problems

    def text(self) -> str:
        """Return the text for stderr."""
        lines: list[str] = []
        for problem in self.problems:
            first, *rest = problem.lines()
            lines += [f"error: {first}", *rest]
        return "\n".join(lines)


def failed(code: Exit | int, what: str, where: str = "", remedy: str = "") -> CliError:
    """Return a CliError with one problem."""
    return CliError(code, Problem(what, where, remedy))
