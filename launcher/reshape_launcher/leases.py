"""A lease: one of several processes has it for a while, and renews it. Values and the protocol.

Does: names what is written and what is read. Never: decides whose it is. State: none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

LEASE_S = 15.0
"""A lease that was not renewed for so long is anybody's."""
NOBODY = ""


@dataclass(frozen=True, slots=True)
class Lease:
    """What its holder wrote. ``term`` grows with each new holder."""

    holder: str = NOBODY
    term: int = 0
    duration_s: float = LEASE_S


@dataclass(frozen=True, slots=True)
class Seen:
    """A lease as it was read. ``version`` is another after each write; empty: there is none yet."""

    lease: Lease
    version: str


class LeasePlace(Protocol):
    """Where a lease is kept. Each call raises OSError while the place does not answer."""

    def read(self) -> Seen:
        """The lease as it is."""

    def write(self, lease: Lease, over: Seen) -> Seen | None:
        """Write it in place of exactly ``over``; None if that is not there any more."""
