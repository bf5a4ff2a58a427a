"""The claim of a checkpoint folder (``claim.json``): the only attempt that may publish there.

Does: reads the claim and compares an attempt of a job with it. ``checkpoints`` and ``takeover``
write claims.
"""

from __future__ import annotations

from pathlib import Path

from reshape_sidecar import codec, foreign
from reshape_sidecar.contract import CLAIM_FILE, Claim

CLAIM_BYTES_MAX = 1 << 20


class CheckpointError(Exception):
    """A checkpoint could not be written or claimed; the message says what, where and the remedy."""


class StaleAttempt(CheckpointError):
    """A newer attempt or a later job has the folder: this process must not publish, and stops."""

    def __init__(self, folder: Path, attempt: int, holder: Claim, job: str) -> None:
        other = f"attempt {holder.attempt}" if belongs_to(holder, job) else f"job {holder.job}"
        super().__init__(
            f"checkpoint folder {folder} is claimed by {other}; attempt {attempt} is an old copy "
            f"of {job or 'this job'} and must not save there. Let it stop; {other} trains on."
        )


def read(folder: Path) -> Claim | None:
    """Return the claim of ``folder``, or None. Raises CheckpointError if it is not readable."""
    path = folder / CLAIM_FILE
    try:
        return codec.loads(Claim, foreign.read(path, CLAIM_BYTES_MAX, follow=False))
    except FileNotFoundError:
        return None
    except (OSError, codec.CodecError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}). Remove it only if no other attempt of this job runs."
        ) from None


def belongs_to(holder: Claim, job: str) -> bool:
    """Return whether ``holder`` is a claim of ``job``; one that names no job counts as such."""
    return not holder.job or not job or holder.job == job


def require_current(folder: Path, attempt: int, job: str) -> Claim | None:
    """Return the folder's claim, or None, unless it excludes ``attempt`` of ``job``.

    Raises StaleAttempt under the claim of a newer attempt or another job, CheckpointError.
    """
    holder = read(folder)
    if holder is not None and (holder.attempt > attempt or not belongs_to(holder, job)):
        raise StaleAttempt(folder, attempt, holder, job)
    return holder


def require_held(folder: Path, attempt: int, job: str) -> None:
    """Raise StaleAttempt or CheckpointError unless the claim is that of ``attempt``."""
    holder = require_current(folder, attempt, job)
    if holder is None or holder.attempt < attempt:
        raise CheckpointError(f"attempt {attempt} has not claimed {folder}; claim it first.")
