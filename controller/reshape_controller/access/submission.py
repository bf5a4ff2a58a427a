"""The owner of a submitted record, and the caps that hold for it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from reshape_controller.access.identity import Identity, Role
from reshape_controller.core.errors import ReshapeError
from reshape_controller.core.model import FieldError, JobSpec


class Denied(ReshapeError):
    """The identity may not submit this record; every reason with its field and remedy."""

    def __init__(self, errors: tuple[FieldError, ...]) -> None:
        super().__init__("; ".join(error.summary for error in errors))
        self.errors = errors


def owned(
    spec: JobSpec, identity: Identity, uid_of: Callable[[str], int | None], default: str = ""
) -> JobSpec:
    """Return the record with its owner and the uid of its processes. Raises Denied.

    ``uid_of``: gives the uid of a user's token. ``default``: owner if an operator's record names
    none. An operator may submit for another user: the job then runs under that user's uid.
    """
    if identity.role is Role.OPERATOR:
        user = spec.user or default or identity.name
        uid = identity.uid if user == identity.name else uid_of(user)
        return replace(spec, user=user, uid=uid)
    errors = _beyond_caps(spec, identity)
    if spec.user and spec.user != identity.name and not identity.is_unverified:
        what = f"{spec.user!r:.80} is another user; this token belongs to {identity.name}"
        errors += (FieldError("user", what, "leave it out; only an operator submits for others"),)
    if errors:
        raise Denied(errors)
    return replace(spec, user=identity.name, uid=identity.uid)


def _beyond_caps(spec: JobSpec, identity: Identity) -> tuple[FieldError, ...]:
    caps, errors = identity.caps, []
    ask = "ask an operator for a token with a higher cap, or to submit the job"
    if spec.priority > caps.priority:
        what = f"{spec.priority} is above {caps.priority}, the most that {identity.name} may ask"
        errors.append(FieldError("priority", what, f"use {caps.priority} or less; or {ask}"))
    if spec.may_restart and not caps.may_restart:
        what = f"{identity.name} may not set it"
        errors.append(FieldError("may_restart", what, f"leave it out; or {ask}"))
    return tuple(errors)
