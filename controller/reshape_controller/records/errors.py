"""The error of a record that cannot be a job, and foreign values and names in messages."""

from __future__ import annotations

import reprlib

from reshape_controller.core.errors import ReshapeError
from reshape_controller.core.model import FieldError

ERRORS_MAX = 50
"""Largest number of problems that are listed of one record."""

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = _repr.maxlong = 60
_repr.maxlevel = 3


class RecordInvalid(ReshapeError):
    """A record breaks rules. ``errors`` names each problem, in the order of the record's fields.

    ``name``, ``user``: those of the record, for the rejected row; empty if it has none.
    """

    def __init__(self, errors: tuple[FieldError, ...], *, name: str = "", user: str = "") -> None:
        if len(errors) > ERRORS_MAX:
            rest = len(errors) - ERRORS_MAX
            errors = (*errors[:ERRORS_MAX], FieldError("", f"and {rest} more problems"))
        super().__init__("; ".join(text_of(error) for error in errors))
        self.errors = errors
        self.name = name
        self.user = user


def text_of(error: FieldError) -> str:
    """A problem with its hint, on one line."""
    return error.told + (f" ({error.hint})" if error.hint else "")


def shown(value: object) -> str:
    """A short text of any value, for messages."""
    try:
        return " ".join(_repr.repr(value).split())
    except Exception:  # a foreign object's own repr may do anything
        return f"a {type(value).__name__}"


def printable(text: str) -> str:
    """Remove control characters, which a terminal would obey, from a user's text."""
    return "".join(character for character in text if character.isprintable())
