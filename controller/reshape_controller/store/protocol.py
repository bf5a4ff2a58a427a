"""The interface of a store. One contract suite (tests/contract) runs against each of them.

The log is the commit; everything else is either a projection of it (users read these) or the inbox
(users write this). A store does not decide, and needs no transaction over several documents.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from reshape_controller.core.errors import ReshapeError
from reshape_controller.core.knowledge import Learned
from reshape_controller.core.model import Gpu, GpuId, Host, Job, JobId, JobState
from reshape_controller.core.plan import Plan
from reshape_controller.core.record import HistoryEntry, LogRecord
from reshape_profiles.schema import Profile

SNAPSHOT_PART_BYTES_MAX = 4 * 1024 * 1024
"""Largest part of a snapshot, in bytes of UTF-8; a snapshot is cut into parts."""
REQUEST_KEY_LENGTH = 8
"""Number of characters of ``request_key``."""


class StoreError(ReshapeError):
    """The store cannot be used now; nothing was acknowledged. The text names store and remedy."""


class StoreRefused(StoreError):
    """The store answers and refuses: the user, the rights or the request. A fault passes by itself;
    a refusal lasts until a person acts. ``login``: it refuses the user or the password."""

    def __init__(self, message: str, *, login: bool = False) -> None:
        super().__init__(message)
        self.login = login


class StoreLost(StoreError):
    """The store lacks something that it acknowledged. The controller stops instead of retrying."""


class UnknownPage(StoreError):
    """A page of jobs was asked for after a job that is not there."""


class StoreCorrupt(StoreLost):
    """The store holds something that cannot be read. Nothing was changed.

    ``location``: the file or address. ``last_good_seq``: the newest record before the damage.
    """

    def __init__(self, location: str, last_good_seq: int, message: str, remedy: str) -> None:
        super().__init__(f"{location}: {message}; last good seq {last_good_seq}; remedy: {remedy}")
        self.location = location
        self.last_good_seq = last_good_seq
        self.remedy = remedy


class SeqTaken(StoreError):
    """The log has a record with this seq already: this controller's own, if the reply to its append
    was lost, or another controller's."""

    def __init__(self, existing: LogRecord) -> None:
        super().__init__(
            f"seq {existing.seq} was written by {existing.writer} (epoch {existing.epoch})"
        )
        self.existing = existing


class StoreBehind(StoreLost):
    """The store lacks a record that it acknowledged: the log ends before it, or has another record
    in its place.

    ``last_seq``: the newest record there is. ``expected_seq``: the newest that there must be.
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


class RolledBack(StoreBehind):
    """At a start: the log lacks a record that was acknowledged before.

    ``source``: where the record was noted.
    """

    def __init__(self, last_seq: int, expected_seq: int, source: str) -> None:
        what = f"has another record at seq {expected_seq} than {source} has noted"
        if last_seq < expected_seq:
            lost = expected_seq - last_seq
            what = (
                f"ends at seq {last_seq}, but {source} has noted seq {expected_seq}: the store "
                f"was rolled back, and {lost} acknowledged record{'s are' if lost > 1 else ' is'} "
                "lost"
            )
        StoreError.__init__(
            self,
            f"the log {what}; remedy: put the newest store back (an SQLite file with its -wal); "
            "or go on without these records: reshape db recover --accept-loss",
        )
        self.last_seq = last_seq
        self.expected_seq = expected_seq


class RequestKind(StrEnum):
    """Kind of a request in the inbox; ``pause`` is read as ``halt``."""

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
    """The end of the id of the job that a request becomes; a store finds the job by it."""
    return hashlib.sha256(request.encode(errors="surrogatepass")).hexdigest()[:REQUEST_KEY_LENGTH]


@dataclass(frozen=True, slots=True)
class InboxItem:
    """A request as a user wrote it into the store."""

    id: str
    kind: str
    body: str
    """JSON text exactly as written: not parsed yet, and possibly invalid."""
    owner: str = ""
    """User whose own inbox it was in; empty: it was in the inbox of all."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as users read it: the projection, stamped with the seq that it shows."""

    id: JobId
    name: str
    user: str
    state: JobState
    seq: int
    submitted_at_s: float
    job: Job | None
    """None for a rejected record."""
    errors: tuple[tuple[str, str, str], ...] = ()
    """(path, message, hint) of each problem of a rejected record."""


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """Recorded profile of a job type, and the speeds and costs learned from its running jobs."""

    job_type: str
    seq: int
    profile: Profile | None
    learned: Learned | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan that was applied, with every option that was evaluated."""

    seq: int
    number: int
    """Position of the plan within its record."""
    at_s: float
    policy: str
    plan: Plan


@dataclass(frozen=True, slots=True)
class GpuUseRow:
    """Use of a GPU by the job that trains on it, as the job's SideCar reports it."""

    gpu: GpuId
    job: JobId
    used_bytes: int
    utilization_ratio: float | None
    seen_at_s: float


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows that one append changed, for the projections. Writing them is idempotent by ``seq``."""

    seq: int
    at_s: float
    jobs: tuple[JobRow, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    hosts: tuple[Host, ...] = ()
    history: tuple[HistoryEntry, ...] = ()
    decisions: tuple[Decision, ...] = ()
    profiles: tuple[ProfileRow, ...] = ()
    workers: tuple[tuple[GpuId, int], ...] = ()
    """For each of ``gpus`` on which a job trains: the number of the job's worker."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of jobs, in the order asked for. ``next_after`` is None on the last page."""

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
        """Durably add ``record``, sealed by ``store.digest``. Raises SeqTaken if its seq exists,
        StoreBehind if the record before it is not there."""

    def read(self, after_seq: int) -> AsyncIterator[LogRecord]:
        """Read the records after a seq, in order. Raises StoreCorrupt at a gap."""

    async def write_snapshot(self, seq: int, parts: tuple[str, ...]) -> None:
        """Write a snapshot of the state at ``seq``; it is valid once all its parts are there."""

    async def latest_snapshot(self) -> tuple[int, tuple[str, ...]] | None:
        """The newest complete snapshot, or None."""

    # --- projections
    async def projected_seq(self) -> int:
        """Seq up to which the projections are complete."""

    async def project(self, changes: Changes) -> None:
        """Write changed rows. A repetition, or older rows after newer ones, change nothing."""

    async def show_gpu_use(self, uses: tuple[GpuUseRow, ...], epoch: int) -> None:
        """Show users how jobs use their GPUs, unless the controller of a later epoch has done so. A
        store that only the daemon reads shows nothing."""

    async def jobs(
        self,
        *,
        limit: int = 100,
        after: str | None = None,
        states: tuple[JobState, ...] = (),
        user: str | None = None,
        name: str | None = None,
        newest: bool = False,
    ) -> Page:
        """Jobs in order of submission, filtered, one page. ``name``: a pattern of names and ids, in
        which ``*`` stands for any text and ``?`` for one character; ``newest``: in reverse order.
        """

    async def job(self, key: str, user: str = "") -> JobRow | None:
        """The job with this id, else the newest with this name, one of ``user`` first, else None. A
        rejected record is returned only if no job has the name."""

    async def gpus(self) -> tuple[Gpu, ...]: ...

    async def hosts(self) -> tuple[Host, ...]: ...

    async def history(self, job: JobId | None, *, limit: int = 1000) -> tuple[HistoryEntry, ...]:
        """Entries of one job (None: of all), oldest first; the newest ``limit`` of them."""

    async def history_between(
        self, after_seq: int, up_to_seq: int
    ) -> tuple[tuple[int, int, HistoryEntry], ...]:
        """Entries of the records after one, up to another, in order: each with its record's seq and
        its number there."""

    async def decisions(self, job: JobId | None, *, limit: int = 100) -> tuple[Decision, ...]:
        """Decisions about a job (None: all), oldest first; the newest ``limit`` of them."""

    async def profiles(self) -> tuple[ProfileRow, ...]:
        """Rows of all job types, by type."""

    # --- readers of the history that go on where they were
    async def cursor(self, name: str) -> int | None:
        """Seq up to which a reader has what it reads; None if it has none."""

    async def set_cursor(self, name: str, seq: int) -> None:
        """Durably note how far a reader is."""

    # --- the projections against the log (live.audit)
    async def differing(self, expected: tuple[Changes, ...], end_seq: int) -> tuple[str, ...]:
        """Names (``jobs/ID``, ``history/SEQ-NUMBER``) of the expected rows that are missing or
        differ, without those that an append after ``end_seq`` has written."""

    async def rewrite(self, expected: tuple[Changes, ...], end_seq: int) -> None:
        """Make the rows exactly ``expected``, but for rows newer than ``end_seq``."""

    def row_names(self) -> AsyncIterator[str]:
        """Names of all rows, in any order."""

    async def forget(self, names: tuple[str, ...]) -> None:
        """Remove rows by name."""

    # --- inbox
    async def put_request(self, item: InboxItem) -> None:
        """Durably leave a request for the controller, as a plain insert does."""

    async def requests(self, limit: int) -> tuple[InboxItem, ...]:
        """The oldest requests that were not acknowledged."""

    async def wait_for_requests(self, wait_s: float) -> None:
        """Wait so long, or less if the store notices a new request by itself."""

    @property
    def notices_requests(self) -> bool:
        """Whether the store notices new requests; otherwise only polling finds them."""

    async def acknowledge(self, ids: tuple[str, ...]) -> None:
        """Remove requests, after the append that holds their events. A repetition is no error."""

    async def refuse(self, item: str, text: str) -> None:
        """Remove a request that is refused; ``text`` is the reason, written beside the request if
        the store has a field for it."""
