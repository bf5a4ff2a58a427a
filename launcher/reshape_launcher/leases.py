"""A lease that one of several processes holds for a while and renews: values and protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

LEASE_S = 15.0
"""A lease expires if its holder does not renew it for this long."""
NOBODY = ""


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease as its holder writes it. ``term`` grows with each new holder."""

    holder: str = NOBODY
    term: int = 0
    duration_s: float = LEASE_S
    note: str = ""
    """Text that a holder leaves for the next one; empty if there is none."""


@dataclass(frozen=True, slots=True)
class StoredLease:
    """A lease as it was read. Each write changes ``version``; empty: no lease exists yet."""

    lease: Lease
    version: str


class LeaseStore(Protocol):
    """Stores a lease. Each call raises OSError while the store does not answer."""

    def read(self) -> StoredLease:
        """Return the current lease."""

    def write(self, lease: Lease, previous: StoredLease) -> StoredLease | None:
        """Replace exactly ``previous`` and return the result; None if it has changed since."""
