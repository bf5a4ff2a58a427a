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


class Fenced(CheckpointError):
    """A newer attempt, or a later job, has the folder: this process must not publish, and stop."""

    def __init__(self, folder: Path, attempt: int, held: Claim, job: str) -> None:
        other = f"attempt {held.attempt}" if of_job(held, job) else f"job {held.job}"
        super().__init__(
            f"checkpoint folder {folder} is claimed by {other}; attempt {attempt} is an old copy "
            f"of {job or 'this job'} and must not save there. Let it stop; {other} trains on."
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


def of_job(held: Claim, job: str) -> bool:
    """Whether ``held`` is a claim of ``job``. One that names no job is taken for its own."""
    return not held.job or not job or held.job == job


def not_fenced(folder: Path, attempt: int, job: str) -> Claim | None:
    """The claim, if there is one, beside which ``attempt`` may claim the folder. Raises Fenced,
    CheckpointError."""
    held = read(folder)
    if held is not None and (held.attempt > attempt or not of_job(held, job)):
        raise Fenced(folder, attempt, held, job)
    return held


def must_hold(folder: Path, attempt: int, job: str) -> None:
    """Raises Fenced or CheckpointError unless the claim is that of ``attempt``."""
    held = not_fenced(folder, attempt, job)
    if held is None or held.attempt < attempt:
        raise CheckpointError(f"attempt {attempt} has not claimed {folder}; claim it first.")
