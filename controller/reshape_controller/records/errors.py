"""The error of a record that cannot be a job, and how the values and names of others are shown."""

from __future__ import annotations

import reprlib

from reshape_controller.core.errors import ReshapeError
from reshape_controller.core.model import FieldError

ERRORS_MAX = 50
"""So many problems of one record are listed; a record with more is nonsense anyway."""

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = _repr.maxlong = 60
_repr.maxlevel = 3


class RecordInvalid(ReshapeError):
    """A record breaks rules. ``errors`` has all of them, in the order of the record's fields.

    ``name`` and ``user`` are what the record says, as far as it says it, for the rejected row.
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
    """One problem on one line."""
    return error.summary + (f" ({error.hint})" if error.hint else "")


def shown(value: object) -> str:
    """``value`` as a message names it: short, whatever it is."""
    try:
        return " ".join(_repr.repr(value).split())
    except Exception:  # a foreign object's own repr may do anything
        return f"a {type(value).__name__}"


def printable(text: str) -> str:
    """A text of somebody else without what a terminal obeys."""
    return "".join(character for character in text if character.isprintable())
