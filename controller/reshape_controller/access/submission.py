"""The owner of a submitted record, its Unix user, and the caps that hold for it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from reshape_controller.access.identity import OPERATOR_NAME, Identity, Role
from reshape_controller.core.errors import ReshapeError
from reshape_controller.core.model import FieldError, JobSpec


class Denied(ReshapeError):
    """The identity may not submit this record; every reason with its field and remedy."""

    def __init__(self, errors: tuple[FieldError, ...]) -> None:
        super().__init__("; ".join(error.summary for error in errors))
        self.errors = errors


@dataclass(frozen=True, slots=True)
class Uids:
    """The Unix users of jobs. The only place that decides under which of them a job runs."""

    known: Mapping[str, int] = field(default_factory=dict)
    """Uid by name, also of names whose tokens have ended."""
    operators: frozenset[str] = frozenset({OPERATOR_NAME})
    """Names of operators."""
    required: bool = False
    """Whether what a user submits needs a uid even while no name has one: the daemon is root."""

    def of(self, user: str, *, submits: bool = False) -> int | None:
        """Uid of a user's jobs; None: the daemon's own. Raises Denied.

        ``submits``: the user itself submits the job. A job with the daemon's uid can read the
        operator's token. So as soon as a name has a uid, or if the daemon is root, only jobs of
        operators, or those that they submit, get the daemon's.
        """
        uid = self.known.get(user)
        needed = self.known or (self.required and submits)
        if uid is None and needed and user not in self.operators:
            what = f"jobs run under the uids of their users here, and none is known for {user:.80}"
            remedy = (
                "submit it with a token that has a uid: an operator makes one by reshape token "
                "create NAME --uid UNIX-USER, and sees the uids of all names by reshape token list"
            )
            raise Denied((FieldError("user", what, remedy),))
        return uid


def owned(spec: JobSpec, identity: Identity, uids: Uids, default: str = "") -> JobSpec:
    """Return the record with its owner and the uid of its processes. Raises Denied.

    ``default``: name of an operator whose record has no user. An operator may submit for another
    user: the job then runs under that user's uid.
    """
    if identity.role is Role.OPERATOR:
        user = spec.user or default or identity.name
        # A record without a user is the operator's own job.
        uid = uids.of(user) if spec.user else uids.known.get(user)
        return replace(spec, user=user, uid=uid)
    errors = _beyond_caps(spec, identity)
    if spec.user and spec.user != identity.name and not identity.is_unverified:
        what = f"{spec.user!r:.80} is another user; this token belongs to {identity.name}"
        errors += (FieldError("user", what, "leave it out; only an operator submits for others"),)
    if errors:
        raise Denied(errors)
    return replace(spec, user=identity.name, uid=uids.of(identity.name, submits=True))


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
