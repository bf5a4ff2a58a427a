"""Bounds on what one user may have in a controller: live jobs, and bytes of their records.

Every record of a live job is in the engine's memory and in each snapshot of the log, so one user
must not fill either. Inputs: the live jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from reshape_controller.core.model import FieldError, Job, JobSpec

USER_JOBS_MAX = 10_000
"""Jobs of one user that have not ended."""
USER_BYTES_MAX = 64 << 20
"""Bytes of their environments and commands."""


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
