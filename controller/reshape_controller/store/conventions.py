"""What every store keeps in the same form, whatever it keeps it in. Pure.

Does: the small rules on which stores must agree. Never: reads or writes. State: none.
"""

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

SNAPSHOTS_KEPT = 2
PAGE_ROWS_MAX = 1000
"""Most jobs of one page."""
READ_BYTES_MAX = 4 * 1024 * 1024
"""One reading of the inbox ends with the request that reaches it."""
NO_PLACE = -1
"""Place of a rejected record, which never stood in the queue."""


class OtherVersion(CodecError):
    """Record ``seq`` is whole, and ``error`` says what in it does not fit this version's types."""

    def __init__(self, seq: int, error: CodecError) -> None:
        super().__init__(error.path, error.message)
        self.seq = seq
        self.error = error

    def at(self, location: str) -> StoreError:
        """The error for people, of a store at ``location``."""
        return other_version(f"{location}: record {self.seq} of the log", self.error)


class Damaged(Exception):
    """What is kept does not fit together from ``last_good_seq`` on."""

    def __init__(self, last_good_seq: int, message: str) -> None:
        super().__init__(message)
        self.last_good_seq = last_good_seq


def place_of(row: JobRow) -> int:
    """The job's place in the queue: with the time and the id the order of submission."""
    return row.job.place if row.job is not None else NO_PLACE


def jobs_of(decision: Decision) -> tuple[JobId, ...]:
    """The jobs that a decision is about: its cause and every job that it changes."""
    about = (decision.plan.about,) if decision.plan.about is not None else ()
    return tuple(dict.fromkeys((*about, *(target.job for target in decision.plan.targets))))


def page_limit(limit: int) -> int:
    """``limit`` within its bounds."""
    return max(1, min(limit, PAGE_ROWS_MAX))


def unknown_page(after: str) -> UnknownPage:
    """The error of a page after a job that is not there."""
    return UnknownPage(f"unknown job {after!r} in `after`; remedy: start again at the first page")


def other_version(what: str, error: CodecError) -> StoreError:
    """The error of ``what`` (a record or a snapshot), which is whole, and which this version cannot
    read."""
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
    """Raise StoreError for a snapshot that must not be kept."""
    if not parts:
        raise StoreError(f"snapshot {seq} has no parts; remedy: report this defect")
    longest = max(len(part.encode()) for part in parts)
    if longest > SNAPSHOT_PART_BYTES_MAX:
        raise StoreError(
            f"snapshot {seq} has a part of {longest} bytes, more than {SNAPSHOT_PART_BYTES_MAX}; "
            "remedy: report this defect"
        )
