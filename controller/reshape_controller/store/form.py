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

SNAPSHOTS_KEPT = 2
PAGE_ROWS_MAX = 1000
"""Most jobs of one page."""
READ_BYTES_MAX = 4 * 1024 * 1024
"""One reading of the inbox ends with the request that reaches it."""
NO_PLACE = -1
"""Place of a rejected record, which never stood in the queue."""


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
    return UnknownPage(
        f"there is no job {after!r} to go on after; remedy: start again at the first page"
    )


def other_version(seq: int, error: Exception) -> StoreError:
    """The error of a record that is whole and that this version cannot read."""
    return StoreError(
        f"record {seq} of the log is whole but was written by another version ({error}); "
        "nothing was changed; remedy: use that version"
    )


def check_parts(seq: int, parts: tuple[str, ...]) -> None:
    """Raise StoreError for a snapshot that must not be kept."""
    if not parts:
        raise StoreError(f"snapshot {seq} has no parts; remedy: none, this is a defect")
    longest = max(len(part.encode()) for part in parts)
    if longest > SNAPSHOT_PART_BYTES_MAX:
        raise StoreError(
            f"snapshot {seq} has a part of {longest} bytes, more than {SNAPSHOT_PART_BYTES_MAX}; "
            "remedy: none, this is a defect"
        )
