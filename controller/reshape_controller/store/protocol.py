"""What every store can do. One contract suite (tests/contract) runs against each.

The log is the commit; everything else is either a projection of it (users read these) or the
inbox (users write this). Never here: a decision, or a transaction over several documents.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from reshape_controller.core.errors import ReshapeError
from reshape_controller.core.model import Gpu, Host, Job, JobId, JobState
from reshape_controller.core.plan import Plan
from reshape_controller.core.profile_book import Learned
from reshape_controller.core.record import HistoryEntry, LogRecord
from reshape_profiles.schema import Profile

SNAPSHOT_PART_BYTES_MAX = 4 * 1024 * 1024
"""Whoever writes a snapshot cuts it into parts of at most so many bytes of UTF-8."""
REQUEST_KEY_LENGTH = 8
"""Characters of ``request_key``."""


class StoreError(ReshapeError):
    """The store cannot be used now; nothing was acknowledged. The text names store and remedy."""


class StoreLost(StoreError):
    """What was acknowledged is not there any more. Never a reason to retry: who meets it stops."""


class UnknownPage(StoreError):
    """The page of jobs that is to follow a job which is not there."""


class StoreCorrupt(StoreLost):
    """The store holds something that cannot be read. Nothing was changed.

    ``location`` names the file or address, ``last_good_seq`` the newest record before the damage.
    """

    def __init__(self, location: str, last_good_seq: int, message: str, remedy: str) -> None:
        super().__init__(f"{location}: {message}; last good seq {last_good_seq}; remedy: {remedy}")
        self.location = location
        self.last_good_seq = last_good_seq
        self.remedy = remedy


class SeqTaken(StoreError):
    """Another record has this seq. ``found`` is it: our own lost reply, or another controller."""

    def __init__(self, found: LogRecord) -> None:
        super().__init__(f"seq {found.seq} was written by {found.writer} (epoch {found.epoch})")
        self.found = found


class StoreBehind(StoreLost):
    """The store lacks a record that was acknowledged: it ends before it, or has another one in its
    place.

    ``last_seq`` is the newest that it has, ``expected_seq`` the newest that it must have.
    """

    def __init__(self, last_seq: int, expected_seq: int) -> None:
        what = f"ends at seq {last_seq}"
        if last_seq >= expected_seq:
            what = f"has another record at seq {expected_seq}"
        super().__init__(
            f"the store {what}, but seq {expected_seq} was acknowledged; "
            "remedy: restore the right store, then restart the controller"
        )
        self.last_seq = last_seq
        self.expected_seq = expected_seq


class RequestKind(StrEnum):
    """Requests that the inbox accepts. ``pause`` is read as ``halt``."""

    SUBMIT = "submit"
    CANCEL = "cancel"
    HALT = "halt"
    RESUME = "resume"
    PIN = "pin"
    DRAIN = "drain"
    UNDRAIN = "undrain"
    CLEAR = "clear"
    PROFILE = "profile"

    @classmethod
    def _missing_(cls, value: object) -> RequestKind | None:
        return cls.HALT if value == "pause" else None


def request_key(request: str) -> str:
    """What the id of a job ends with that came of this request: so a store can tell which."""
    return hashlib.sha256(request.encode(errors="surrogatepass")).hexdigest()[:REQUEST_KEY_LENGTH]


@dataclass(frozen=True, slots=True)
class InboxItem:
    """Something that a user wrote into the store. ``body`` is JSON text exactly as written: it is
    parsed at the edge like any other request, and may be nonsense."""

    id: str
    kind: str
    body: str


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as users read it: the projection, stamped with the seq that it shows.

    ``job`` is None for a rejected record, which never became one; ``errors`` then say why.
    """

    id: JobId
    name: str
    user: str
    state: JobState
    seq: int
    submitted_at_s: float
    job: Job | None
    errors: tuple[tuple[str, str, str], ...] = ()
    """(path, message, hint) of a rejected record."""


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """What is known of a job type: what was recorded, and what running jobs taught beside it."""

    job_type: str
    seq: int
    profile: Profile | None
    learned: Learned | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan that was applied, with everything that was weighed."""

    seq: int
    number: int
    """Its number within the record."""
    at_s: float
    policy: str
    plan: Plan


@dataclass(frozen=True, slots=True)
class Changes:
    """What one append changed, for the projections. Written after it, idempotent by ``seq``."""

    seq: int
    at_s: float
    jobs: tuple[JobRow, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    hosts: tuple[Host, ...] = ()
    history: tuple[HistoryEntry, ...] = ()
    decisions: tuple[Decision, ...] = ()
    profiles: tuple[ProfileRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """One page of jobs, newest place last. ``next_after`` is None on the last page."""

    rows: tuple[JobRow, ...]
    total: int
    next_after: str | None


class Store(Protocol):
    """A log with its projections and its inbox. Every method may raise StoreError."""

    async def open(self) -> None:
        """Open or create. Raises StoreCorrupt, having touched nothing, if it is unreadable."""

    async def close(self) -> None: ...

    # --- the log
    async def last_seq(self) -> int:
        """Seq of the newest record; 0 for an empty log."""

    async def append(self, record: LogRecord) -> None:
        """Durably add ``record`` (sealed: ``store.digest``). Raises SeqTaken if its seq exists,
        StoreBehind if the one before it is not there."""

    def read(self, after_seq: int) -> AsyncIterator[LogRecord]:
        """Records with a greater seq, in order, without gap (a gap is StoreCorrupt)."""

    async def write_snapshot(self, seq: int, parts: tuple[str, ...]) -> None:
        """Keep a snapshot of the state at ``seq``; valid only once all its parts are there."""

    async def latest_snapshot(self) -> tuple[int, tuple[str, ...]] | None:
        """The newest complete snapshot, or None."""

    # --- projections
    async def projected_seq(self) -> int:
        """Seq up to which the projections are complete."""

    async def project(self, changes: Changes) -> None:
        """Write what changed. Repeating it, or an older one after a newer, changes nothing."""

    async def jobs(
        self,
        *,
        limit: int = 100,
        after: str | None = None,
        states: tuple[JobState, ...] = (),
        user: str | None = None,
    ) -> Page:
        """Jobs in order of submission, filtered, one page."""

    async def job(self, key: str) -> JobRow | None:
        """The job with this id, else the newest with this name (a rejected record only where no
        job has it), else None."""

    async def gpus(self) -> tuple[Gpu, ...]: ...

    async def hosts(self) -> tuple[Host, ...]: ...

    async def history(self, job: JobId | None, *, limit: int = 1000) -> tuple[HistoryEntry, ...]:
        """Entries of one job (None: of all), oldest first; the newest ``limit`` of them."""

    async def decisions(self, job: JobId | None, *, limit: int = 100) -> tuple[Decision, ...]:
        """Decisions about a job (None: all), oldest first; the newest ``limit`` of them."""

    async def profiles(self) -> tuple[ProfileRow, ...]:
        """Everything that is known of job types, by type."""

    # --- the projections against the log (live.audit)
    async def differing(self, wanted: tuple[Changes, ...], end_seq: int) -> tuple[str, ...]:
        """Names (``jobs/ID``, ``history/SEQ-NUMBER``) of rows in ``wanted`` that are not shown, or
        not so. A row that a newer append than ``end_seq`` has written is left out."""

    async def rewrite(self, wanted: tuple[Changes, ...], end_seq: int) -> None:
        """Show exactly ``wanted``, whatever is shown now, but for rows newer than ``end_seq``."""

    def shown(self) -> AsyncIterator[str]:
        """Names of all rows, in any order."""

    async def forget(self, names: tuple[str, ...]) -> None:
        """Remove rows by name."""

    # --- inbox
    async def put_request(self, item: InboxItem) -> None:
        """Durably leave a request for the controller (what a plain insert does)."""

    async def requests(self, limit: int) -> tuple[InboxItem, ...]:
        """The oldest requests that were not acknowledged."""

    async def wait_for_requests(self, wait_s: float) -> None:
        """Wait so long, or less where the store notices by itself that something was asked."""

    @property
    def notices_requests(self) -> bool:
        """Whether it does; else they are found by polling alone."""

    async def acknowledge(self, ids: tuple[str, ...]) -> None:
        """Take requests out, after the append that holds their events. Repeating is no error."""

    async def refuse(self, item: str, text: str) -> None:
        """Take out a request of which nothing comes; ``text`` says why, beside what was asked where
        the store has a place for it."""
