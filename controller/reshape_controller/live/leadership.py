"""Waiting for a lease, keeping it, and stopping once another controller writes the log.

Does: looks at the lease every few seconds and does what ``election`` says; looks at the log while
the lease is not held. Never: stops because the lease is lost, or because its place does not answer:
a lease only elects, and the log's epoch decides. State: what this candidate knows of the lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, replace

import structlog

from reshape_controller.live.journal import Journal
from reshape_controller.store.protocol import StoreError
from reshape_launcher.leases import LEASE_S, NOBODY, Lease, LeaseStore, StoredLease


@dataclass(frozen=True, slots=True)
class Candidate:
    """What one process knows of the lease. ``name`` is no other process's, ever."""

    name: str
    seen: StoredLease | None = None
    """As it was when last looked at; None: it was not, or could not be."""
    since_s: float = 0.0
    """Since when it has been so, by this candidate's clock."""
    renewed_s: float | None = None
    """When the newest write of ours that succeeded was begun."""

    def looked(self, seen: StoredLease, now_s: float) -> Candidate:
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

    def wrote(self, seen: StoredLease, began_s: float, now_s: float) -> Candidate:
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


LOOK_EVERY_S = 2.0
"""Between two looks of a candidate, and between two renewals."""
LOG_EVERY_S = 1.0
"""Between two looks at the log without the lease."""
RELEASE_S = 5.0
"""A release at the end takes no longer. Then: the lease runs out by itself."""

log = structlog.get_logger("reshape.leadership")


class Leadership:
    """One per daemon that has a lease to win. ``name`` is no other daemon's, ever."""

    def __init__(self, place: LeaseStore, name: str) -> None:
        self._place = place
        self._candidate = Candidate(name)
        self._trouble = ""
        self._looking = asyncio.Lock()
        self._holder = NOBODY

    @property
    def name(self) -> str:
        return self._candidate.name

    @property
    def holder(self) -> str:
        """Who had the lease when it was last seen."""
        return self._holder

    @property
    def held(self) -> bool:
        """Whether the lease is surely ours at this moment."""
        return self._candidate.holds(time.monotonic())

    async def won(self) -> None:
        """Wait until the lease is ours; it has to be kept from then on."""
        while True:
            await self.look()
            if self.held:
                log.info("elected", name=self.name)
                return
            await asyncio.sleep(LOOK_EVERY_S)

    async def keep(self) -> None:
        """Renew it until cancelled; where it was lost, try to have it back."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            held = self.held
            await self.look()
            if held and not self.held:
                log.warning("lease-lost", holder=self._holder, consequence="the log decides")

    async def look(self) -> None:
        """Read the lease, and write it if that is due; trouble with its place changes nothing."""
        async with self._looking:
            try:
                await self._look()
                self._trouble = ""
            except OSError as error:
                self._candidate = self._candidate.blind()
                if str(error) != self._trouble:
                    log.warning("lease-not-seen", error=str(error), consequence="nothing changes")
                self._trouble = str(error)

    async def release(self) -> None:
        """Let others have it at once, if it is ours. Never raises; takes ``RELEASE_S`` at most."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(RELEASE_S), self._looking:
                seen = await asyncio.to_thread(self._place.read)
                freed = self._candidate.looked(seen, time.monotonic()).release()
                if freed is not None:
                    await asyncio.to_thread(self._place.write, freed, seen)
                    log.info("lease-released", name=self.name)

    async def watch_log(self, journal: Journal) -> None:
        """Look at the log while the lease is not held. Raises Fenced."""
        while True:
            await asyncio.sleep(LOG_EVERY_S)
            if not self.held:
                try:
                    await journal.check_fence()
                except StoreError as error:  # a log that cannot be read says nothing
                    log.warning("log-not-seen", error=str(error))

    async def _look(self) -> None:
        seen = await asyncio.to_thread(self._place.read)
        now_s = time.monotonic()
        self._candidate, self._holder = self._candidate.looked(seen, now_s), seen.lease.holder
        wanted = self._candidate.wants(now_s)
        if wanted is None:
            return
        written = await asyncio.to_thread(self._place.write, wanted, seen)
        if written is not None:
            self._candidate = self._candidate.wrote(written, now_s, time.monotonic())
            self._holder = written.lease.holder
