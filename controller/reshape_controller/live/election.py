"""Who may try to lead: one candidate's end of a lease, as a value.

Does: says, from what was read and when by this candidate's own clock, whether to write, and what.
Never: reads a clock, asks anybody, compares two machines' clocks, or says who may write the log:
that is the epoch's. State: none; a change gives another value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reshape_launcher.leases import LEASE_S, NOBODY, Lease, Seen


@dataclass(frozen=True, slots=True)
class Candidate:
    """What one process knows of the lease. ``name`` is no other process's, ever."""

    name: str
    seen: Seen | None = None
    """As it was when last looked at; None: it was not, or could not be."""
    since_s: float = 0.0
    """Since when it has been so, by this candidate's clock."""
    renewed_s: float | None = None
    """When the newest write of ours that succeeded was begun."""

    def looked(self, seen: Seen, now_s: float) -> Candidate:
        """It was read, and is so. The wait for its end goes on only if nobody wrote it."""
        if self.seen is not None and self.seen.version == seen.version:
            return self
        return replace(self, seen=seen, since_s=now_s)

    def blind(self) -> Candidate:
        """It could not be read or written: what its holder did meanwhile is unknown, and the wait
        for its end begins anew."""
        return replace(self, seen=None)

    def wants(self, now_s: float) -> Lease | None:
        """What to write in place of what was seen; None: nothing, it is another's or unknown."""
        if self.seen is None:
            return None
        lease = self.seen.lease
        if lease.holder == self.name:
            return lease
        if lease.holder != NOBODY and now_s < self.since_s + lease.duration_s:
            return None
        return Lease(self.name, lease.term + 1)

    def wrote(self, seen: Seen, began_s: float, now_s: float) -> Candidate:
        """Our write succeeded: this is there now."""
        return replace(self, seen=seen, since_s=now_s, renewed_s=began_s)

    def holds(self, now_s: float) -> bool:
        """Whether nobody else can have it: it is ours, and was renewed in time."""
        taken = self.seen is not None and self.seen.lease.holder != self.name
        return not taken and self.renewed_s is not None and now_s < self.renewed_s + LEASE_S

    def release(self) -> Lease | None:
        """What to write to let others have it at once; None: it is not ours."""
        if self.seen is None or self.seen.lease.holder != self.name:
            return None
        return replace(self.seen.lease, holder=NOBODY)
