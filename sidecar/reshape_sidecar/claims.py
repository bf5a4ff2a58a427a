"""Who may publish in a checkpoint folder: its claim, and what somebody else is told.

Does: reads the claim and compares an attempt of a job with it. Never: writes one (checkpoints.py,
which looks for its base first, and taking_over.py). State: ``claim.json`` in the folder.
"""

from __future__ import annotations

from pathlib import Path

from reshape_sidecar import codec
from reshape_sidecar.contract import CLAIM_FILE, Claim


class CheckpointError(Exception):
    """A checkpoint could not be written or claimed; the message says what, where and the remedy."""


class StaleAttempt(CheckpointError):
    """A newer attempt, or a later job, has the folder: this process must not publish, and stop."""

    def __init__(self, folder: Path, attempt: int, holder: Claim, job: str) -> None:
        other = f"attempt {holder.attempt}" if belongs_to(holder, job) else f"job {holder.job}"
        super().__init__(
            f"checkpoint folder {folder} is claimed by {other}; attempt {attempt} is an old copy "
            f"of {job or 'this job'} and may not publish there. Let it stop; {other} goes on."
        )


def read(folder: Path) -> Claim | None:
    """The claim that holds ``folder``, or None. Raises CheckpointError if it cannot be read."""
    path = folder / CLAIM_FILE
    try:
        return codec.loads(Claim, path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, codec.CodecError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}). Remove it only if no other attempt of this job runs."
        ) from None


def belongs_to(holder: Claim, job: str) -> bool:
    """Whether ``holder`` is a claim of ``job``. One that names no job is taken for its own."""
    return not holder.job or not job or holder.job == job


def require_current(folder: Path, attempt: int, job: str) -> Claim | None:
    """The claim, if there is one, beside which ``attempt`` may claim the folder. Raises Fenced,
    CheckpointError."""
    holder = read(folder)
    if holder is not None and (holder.attempt > attempt or not belongs_to(holder, job)):
        raise StaleAttempt(folder, attempt, holder, job)
    return holder


def require_held(folder: Path, attempt: int, job: str) -> None:
    """Raises Fenced or CheckpointError unless the claim is that of ``attempt``."""
    holder = require_current(folder, attempt, job)
    if holder is None or holder.attempt < attempt:
        raise CheckpointError(f"attempt {attempt} has not claimed {folder}; claim it first.")
