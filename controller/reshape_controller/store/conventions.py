"""The rules that all stores share: limits, the order of jobs, and errors. Pure."""

from __future__ import annotations

from reshape_controller.core.model import JobId
from reshape_controller.store.protocol import (
    SNAPSHOT_PART_BYTES_MAX,
    Decision,
    JobRow,
    StoreError,
    UnknownPage,
)
from reshape_sidecar.codec import CodecError, UnknownTag

SNAPSHOTS_MAX = 2
"""Number of complete snapshots that a store holds; older ones are deleted."""
PAGE_ROWS_MAX = 1000
"""Largest number of jobs on a page."""
READ_BYTES_MAX = 4 * 1024 * 1024
"""Size at which a read of the inbox ends, after the request that reaches it."""
NO_PLACE = -1
"""Queue position of a rejected record."""


class OtherVersion(CodecError):
    """Record ``seq`` is whole but does not fit this version's types; ``error`` says where."""

    def __init__(self, seq: int, error: CodecError) -> None:
        super().__init__(error.path, error.message)
        self.seq = seq
        self.error = error

    def at(self, location: str) -> StoreError:
        """The store's error that users see; ``location`` names the store."""
        return other_version(f"{location}: record {self.seq} of the log", self.error)


class Damaged(Exception):
    """The stored data is inconsistent after record ``last_good_seq``."""

    def __init__(self, last_good_seq: int, message: str) -> None:
        super().__init__(message)
        self.last_good_seq = last_good_seq


def place_of(row: JobRow) -> int:
    """The job's queue position; with the time and the id it gives the order of submission."""
    return row.job.place if row.job is not None else NO_PLACE


def jobs_of(decision: Decision) -> tuple[JobId, ...]:
    """The jobs of a decision: its cause, every job that it changes, and those of its notes."""
    plan = decision.plan
    about = (plan.about,) if plan.about is not None else ()
    changes = (target.job for target in plan.targets)
    return tuple(dict.fromkeys((*about, *changes, *(note.job for note in plan.notes))))


def page_limit(limit: int) -> int:
    """``limit`` within its bounds."""
    return max(1, min(limit, PAGE_ROWS_MAX))


def unknown_page(after: str) -> UnknownPage:
    """The error of a page that is to follow a job that is not there."""
    return UnknownPage(f"unknown job {after!r} in `after`; remedy: start again at the first page")


def other_version(what: str, error: CodecError) -> StoreError:
    """The error of a whole record or snapshot, named by ``what``, that this version cannot read."""
    if isinstance(error, UnknownTag):
        return StoreError(
            f"{what} has type {error.tag!r} at {error.path}, which this version does not know: a "
            "newer version wrote it; nothing was changed; remedy: start that version, or restore "
            "the backup from before it"
        )
    return StoreError(
        f"{what} was written by another version of Reshape ({error}); "
        "nothing was changed; remedy: use that version"
    )


def check_parts(seq: int, parts: tuple[str, ...]) -> None:
    """Check the parts of a snapshot before it is written. Raises StoreError."""
    if not parts:
        raise StoreError(f"snapshot {seq} has no parts; remedy: report this defect")
    longest = max(len(part.encode()) for part in parts)
    if longest > SNAPSHOT_PART_BYTES_MAX:
        raise StoreError(
            f"snapshot {seq} has a part of {longest} bytes, more than {SNAPSHOT_PART_BYTES_MAX}; "
            "remedy: report this defect"
        )
