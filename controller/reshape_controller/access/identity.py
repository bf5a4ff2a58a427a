"""The identities behind requests, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

OPERATOR_NAME = "operator"
"""Name of the identity that the file ``token`` of the home belongs to."""
UNVERIFIED = "unverified"
"""What the user of a job begins with if no token shows that it is theirs."""


class Role(StrEnum):
    """What an identity is there for; ``rights.decide`` gives each role its rights."""

    VIEWER = "viewer"
    USER = "user"
    OPERATOR = "operator"
    SCRAPER = "scraper"
    SIDECAR = "sidecar"
    """The SideCar of one attempt; the controller derives its token, and no file names it."""


@dataclass(frozen=True, slots=True)
class Caps:
    """The most that a user may ask for. An operator has no caps."""

    priority: int = 0
    """Highest priority of a record."""
    pin: bool = True
    """Whether the user may fix the GPU count of a job."""
    may_restart: bool = True
    """Whether a record may set ``may_restart``."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The author of a request."""

    name: str
    role: Role
    uid: int | None = None
    """Unix user id of the processes of its jobs; None: the daemon's own."""
    caps: Caps = Caps()

    @property
    def is_unverified(self) -> bool:
        """Whether only the request itself says whose it is."""
        return self.name.startswith(f"{UNVERIFIED}:")


OPERATOR = Identity(OPERATOR_NAME, Role.OPERATOR)


def unverified(claim: str) -> Identity:
    """Return the identity of a request whose user nothing proves. No token has such a name,
    because a colon is in it."""
    return Identity(f"{UNVERIFIED}:{claim or 'unknown'}", Role.USER)
