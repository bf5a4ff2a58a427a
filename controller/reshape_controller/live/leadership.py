"""Waiting for a lease, keeping it, and stopping once another controller writes the log.

Does: ``Candidate`` is the pure rule of the election: what a process knows of the lease, and when it
may write it. ``Leadership`` reads the lease every few seconds, does what the rule says, and checks
the log while the lease is not held. A lost lease, or a lease server that does not answer, stops
nothing: the lease only elects, and the log's epoch decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from reshape_controller.live.journal import Journal
from reshape_controller.store.protocol import StoreError
from reshape_launcher.leases import LEASE_S, NOBODY, Lease, LeaseStore, StoredLease


@dataclass(frozen=True, slots=True)
class Candidate:
    """One process's knowledge of the lease. Times are of this process's own clock."""

    name: str
    """Unique to this process; not used again after its end."""
    seen: StoredLease | None = None
    """The lease as it was read last; None: it was not read, or could not be."""
    since_s: float = 0.0
    """Time from which the lease has been unchanged."""
    renewed_s: float | None = None
    """Time at which the newest successful write of this process began."""

    def after_read(self, seen: StoredLease, now_s: float) -> Candidate:
        """The candidate after a read. The wait for the lease's end starts again if it changed."""
        if self.seen is not None and self.seen.version == seen.version:
            return self
        return replace(self, seen=seen, since_s=now_s)

    def after_failure(self) -> Candidate:
        """The candidate after a read or write that failed: its holder may have renewed the lease
        meanwhile, so the wait for its end starts again."""
        return replace(self, seen=None)

    def claim(self, now_s: float) -> Lease | None:
        """The lease to write in place of the one read; None if that is another's, or unknown."""
        if self.seen is None:
            return None
        lease = self.seen.lease
        if lease.holder == self.name:
            return lease
        if lease.holder != NOBODY and now_s < self.since_s + lease.duration_s:
            return None
        return replace(lease, holder=self.name, term=lease.term + 1, duration_s=LEASE_S)

    def after_write(self, seen: StoredLease, began_s: float, now_s: float) -> Candidate:
        """The candidate after its own successful write, which left ``seen``."""
        return replace(self, seen=seen, since_s=now_s, renewed_s=began_s)

    def holds(self, now_s: float) -> bool:
        """Whether the lease is surely this process's: no other holder was read, and the newest
        renewal has not run out."""
        lost = self.seen is not None and self.seen.lease.holder != self.name
        return not lost and self.renewed_s is not None and now_s < self.renewed_s + LEASE_S

    def release(self) -> Lease | None:
        """The lease to write so that others can have it at once; None if it is not ours."""
        if self.seen is None or self.seen.lease.holder != self.name:
            return None
        return replace(self.seen.lease, holder=NOBODY)


RENEW_EVERY_S = 2.0
"""Pause between two reads of a candidate, and between two renewals."""
LOG_EVERY_S = 1.0
"""Pause between two checks of the log while the lease is not held."""
RELEASE_S = 5.0
"""Longest time for a release at the end; without one, the lease runs out by itself."""

log = structlog.get_logger("reshape.leadership")


class Leadership:
    """One per daemon that has a lease to win; ``name`` is unique to this daemon."""

    def __init__(self, place: LeaseStore, name: str) -> None:
        self._place = place
        self._candidate = Candidate(name)
        self.note: Callable[[str], str] = lambda there: there
        """The text to leave in the lease, from the text that is there."""
        self.inherited = ""
        """The text in the lease when this daemon won it."""
        self._trouble = ""
        self._renewing = asyncio.Lock()
        self._holder = NOBODY

    @property
    def name(self) -> str:
        return self._candidate.name

    @property
    def holder(self) -> str:
        """The lease's holder as of the newest read."""
        return self._holder

    @property
    def held(self) -> bool:
        """Whether the lease is surely this daemon's at this moment."""
        return self._candidate.holds(time.monotonic())

    async def win(self) -> None:
        """Wait until the lease is this daemon's; ``keep`` has to renew it from then on."""
        while True:
            await self.renew()
            if self.held:
                seen = self._candidate.seen
                self.inherited = seen.lease.note if seen is not None else ""
                log.info("elected", name=self.name)
                return
            await asyncio.sleep(RENEW_EVERY_S)

    async def keep(self) -> None:
        """Renew the lease until cancelled; if it was lost, try to win it back."""
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            held = self.held
            await self.renew()
            if held and not self.held:
                log.warning("lease-lost", holder=self._holder, consequence="the log decides")

    async def renew(self) -> None:
        """Read the lease, and write it if that is due. A failure is logged and changes nothing."""
        async with self._renewing:
            try:
                await self._renew()
                self._trouble = ""
            except OSError as error:
                self._candidate = self._candidate.after_failure()
                if str(error) != self._trouble:
                    log.warning("lease-not-seen", error=str(error), consequence="nothing changes")
                self._trouble = str(error)

    async def release(self) -> None:
        """Let others have the lease at once, if it is this daemon's. Takes ``RELEASE_S`` at most;
        a failure is ignored."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(RELEASE_S), self._renewing:
                seen = await asyncio.to_thread(self._place.read)
                freed = self._candidate.after_read(seen, time.monotonic()).release()
                if freed is not None:
                    freed = replace(freed, note=self.note(freed.note))
                    await asyncio.to_thread(self._place.write, freed, seen)
                    log.info("lease-released", name=self.name)

    async def watch_log(self, journal: Journal) -> None:
        """Check the log while the lease is not held. Raises Fenced."""
        while True:
            await asyncio.sleep(LOG_EVERY_S)
            if not self.held:
                try:
                    await journal.check_fence()
                except StoreError as error:  # a log that cannot be read says nothing
                    log.warning("log-not-seen", error=str(error))

    async def _renew(self) -> None:
        seen = await asyncio.to_thread(self._place.read)
        now_s = time.monotonic()
        self._candidate, self._holder = self._candidate.after_read(seen, now_s), seen.lease.holder
        claim = self._candidate.claim(now_s)
        if claim is None:
            return
        claim = replace(claim, note=self.note(claim.note))
        written = await asyncio.to_thread(self._place.write, claim, seen)
        if written is not None:
            self._candidate = self._candidate.after_write(written, now_s, time.monotonic())
            self._holder = written.lease.holder
