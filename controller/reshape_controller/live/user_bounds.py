"""Bounds on what one user may have in a controller: live jobs, and bytes of their records.

Every record of a live job is in the engine's memory and in each snapshot of the log, so one user
must not fill either; nor the log, which keeps the records of jobs that have ended. Inputs: the live
jobs. State: what each user has submitted of late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from reshape_controller.access.identity import OPERATOR_NAME
from reshape_controller.core.errors import ReshapeError
from reshape_controller.core.model import FieldError, Job, JobSpec
from reshape_controller.live.pace import Pace

USER_JOBS_MAX = 10_000
"""Jobs of one user that have not ended."""
USER_BYTES_MAX = 64 << 20
"""Bytes of their environments and commands."""
LOG_BYTES_PER_S, LOG_BYTES_AT_ONCE = 32.0 * 1024, 256.0 * (1 << 20)
"""Bytes of records that one user may put into the log, on average and at once; an operator as many
as they like."""
RECORD_BYTES = 1024
"""Bytes of a record in the log beside its texts."""


class TooMuch(ReshapeError):
    """A user has put too much into the log of late. ``wait_s``: when there is room again."""

    def __init__(self, message: str, wait_s: float) -> None:
        super().__init__(message)
        self.wait_s = wait_s


class LogShares:
    """One per daemon."""

    def __init__(self) -> None:
        self._pace = Pace(LOG_BYTES_PER_S, LOG_BYTES_AT_ONCE)

    def take(self, specs: Sequence[JobSpec]) -> None:
        """Count records of one user. Raises TooMuch."""
        user = specs[0].user if specs else ""
        size_bytes = sum(RECORD_BYTES + _size_bytes(spec) for spec in specs)
        wait_s = self._pace.wait_s(user, size_bytes)
        if wait_s > 0 and user != OPERATOR_NAME:
            what = f"{user} has submitted more than {LOG_BYTES_AT_ONCE / (1 << 20):g} MiB of late"
            raise TooMuch(f"{what}; put large values into files of the folder code", wait_s)


def refusals(specs: Sequence[JobSpec], jobs: Iterable[Job]) -> tuple[FieldError, ...]:
    """Return why the records cannot be accepted beside the live ``jobs``; empty if they can."""
    counts, sizes = Counter[str](), Counter[str]()
    users = {spec.user for spec in specs}
    live = [job.spec for job in jobs if job.spec.user in users and not job.state.terminal]
    for spec in (*live, *specs):
        counts[spec.user] += 1
        sizes[spec.user] += _size_bytes(spec)
    found = []
    for user in sorted(users):
        if counts[user] > USER_JOBS_MAX:
            what = f"{user} would have {counts[user]} jobs that have not ended"
            remedy = f"at most {USER_JOBS_MAX}: submit the rest once some have ended"
            found.append(FieldError("name", what, remedy))
        if sizes[user] > USER_BYTES_MAX:
            what = f"the environments and commands of {user}'s jobs would have {sizes[user]} bytes"
            remedy = f"at most {USER_BYTES_MAX}: put large values into files of the folder code"
            found.append(FieldError("env", what, remedy))
    return tuple(found)


def _size_bytes(spec: JobSpec) -> int:
    """Return about as many bytes as the texts of a record have."""
    words = sum(map(len, spec.command))
    return words + sum(len(name) + len(value) for name, value in spec.env)
