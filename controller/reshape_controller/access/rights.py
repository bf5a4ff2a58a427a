"""The one decision about every request: its right, the identity, and the owner of the job.

Pure. Each operation of the HTTP interface names its right in ``http.routes``; the store's inbox
asks here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from reshape_controller.access.identity import Identity, Role


class Right(StrEnum):
    """What an operation needs."""

    OPEN = "open"
    """Nothing: a probe, which shows that the process answers."""
    REPORT = "report"
    """Speak for an attempt."""
    SCRAPE = "scrape"
    """Read figures; ``lists_all`` says whether with the names of jobs that hold GPUs."""
    LOOK = "look"
    """Look at the cluster: GPUs, hosts, profiles, the daemon's status."""
    LIST = "list"
    """List jobs; ``lists_all`` says which."""
    SEE_ALL = "see all"
    """Read a document in which every job has its name."""
    SUBMIT = "submit"
    SEE_JOB = "see job"
    """See a job's name, state and GPUs."""
    READ_JOB = "read job"
    """Read a job's logs, history and decisions."""
    CHANGE_JOB = "change job"
    PIN_JOB = "pin job"
    OPERATE = "operate"
    """Change the cluster, or read the controller's whole state."""

    @property
    def about_job(self) -> bool:
        """Whether the decision needs the owner of a job."""
        return self in _ABOUT_JOB


class Verdict(StrEnum):
    """The outcome of a decision."""

    ALLOWED = "allowed"
    UNIDENTIFIED = "unidentified"
    """No valid token came with the request."""
    FORBIDDEN = "forbidden"
    HIDDEN = "hidden"
    """The answer is that of a job that does not exist."""


_ABOUT_JOB = (Right.SEE_JOB, Right.READ_JOB, Right.CHANGE_JOB, Right.PIN_JOB)
_PEOPLE = frozenset({Role.VIEWER, Role.USER, Role.OPERATOR})
_SUBMITTERS = frozenset({Role.USER, Role.OPERATOR})
ROLES: Mapping[Right, frozenset[Role]] = {
    Right.REPORT: frozenset({Role.SIDECAR}),
    Right.SCRAPE: _PEOPLE | {Role.SCRAPER},
    Right.LOOK: _PEOPLE,
    Right.LIST: _PEOPLE,
    Right.SEE_ALL: _PEOPLE,
    Right.SUBMIT: _SUBMITTERS,
    Right.SEE_JOB: _PEOPLE,
    Right.READ_JOB: _SUBMITTERS,
    Right.CHANGE_JOB: _SUBMITTERS,
    Right.PIN_JOB: _SUBMITTERS,
    Right.OPERATE: frozenset({Role.OPERATOR}),
}
"""The roles that may have a right at all."""


def decide(
    right: Right | None,
    identity: Identity | None,
    owner: str | None = None,
    *,
    users_see_all: bool = True,
) -> Verdict:
    """Decide about a request.

    ``right``: None for a path or method that does not exist. ``identity``: None without a valid
    token. ``owner``: user of the job; None while it is not known, or if there is no job: then the
    decision is about the role alone. ``users_see_all``: whether a user sees the jobs of others.
    """
    if right is Right.OPEN:
        return Verdict.ALLOWED
    if identity is None:
        return Verdict.UNIDENTIFIED
    if right is None or (identity.role is Role.OPERATOR and right is not Right.REPORT):
        return Verdict.ALLOWED
    if identity.role not in ROLES[right]:
        return Verdict.FORBIDDEN
    if right is Right.PIN_JOB and not identity.caps.pin:
        return Verdict.FORBIDDEN
    if right is Right.SEE_ALL:
        return Verdict.ALLOWED if lists_all(identity, users_see_all) else Verdict.FORBIDDEN
    if not right.about_job or owner in (None, identity.name):
        return Verdict.ALLOWED
    if not lists_all(identity, users_see_all):
        return Verdict.HIDDEN
    return Verdict.ALLOWED if right is Right.SEE_JOB else Verdict.FORBIDDEN


def refusal(identity: Identity, right: Right) -> str:
    """Say in words why ``decide`` refuses."""
    if right.about_job and identity.role in ROLES[right]:
        if right is Right.PIN_JOB and not identity.caps.pin:
            return f"{identity.name} may not fix GPU counts"
        return f"the job belongs to another user than {identity.name}"
    return f"{identity.name} has the role {identity.role.value}, which may not do this"


def lists_all(identity: Identity, users_see_all: bool) -> bool:
    """Whether the identity sees the names and states of all jobs."""
    return users_see_all or identity.role is not Role.USER
