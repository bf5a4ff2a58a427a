"""The client's errors. Each has problems: what is wrong, where, and the remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem: what is wrong, where, and the remedy. ``where`` of a record is its field."""

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


class ClientError(Exception):
    """A request failed. ``problems`` has at least one entry."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("; ".join(problem.what for problem in problems))
        self.problems = problems

    @classmethod
    def of(cls, what: str, where: str = "", remedy: str = "") -> Self:
        """Return an error with one problem."""
        return cls(Problem(what, where, remedy))

    def text(self) -> str:
        """Return every problem, in lines."""
        lines: list[str] = []
        for problem in self.problems:
            first, *rest = problem.lines()
            lines += [f"error: {first}", *rest]
        return "\n".join(lines)

    def __str__(self) -> str:
        return "; ".join(" ".join(line.split()) for p in self.problems for line in p.lines())


class SettingError(ClientError):
    """An argument, a setting or the configuration file is wrong."""


class LoginsUnusable(ClientError):
    """The file of logins cannot be read, written or trusted."""


class PackageMissing(ClientError):
    """A package that this call needs is not installed."""


class Unreachable(ClientError):
    """No daemon answers, or it takes no requests now. Nothing was changed, unless the answer to a
    request that was sent is what is missing."""


class NotFound(ClientError):
    """There is no such job, host, log or path; or it is not this user's."""


class Refused(ClientError):
    """The daemon refuses the token or the request."""


class TooManyRequests(Refused):
    """This user asks too often; nothing was changed. ``again_after_s``: when to ask again."""

    again_after_s = 1.0


class RecordRejected(Refused):
    """The daemon rejects a record; ``where`` of each problem is a field of the record."""


class BadAnswer(ClientError):
    """The answer is not that of a daemon of this version."""


class WaitTimeout(ClientError):
    """A job has not ended in the time that was given."""
