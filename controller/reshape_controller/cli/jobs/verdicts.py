"""The verdict on a job's reshapes, and what proved it, as lines for a terminal. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reshape_gpu.values import JobView

if TYPE_CHECKING:  # here, because a list does not need it
    from reshape_profiles.schema import Verification

MAY_RESTART, PER_GPU = "may restart", "per-gpu"
BESIDE = "state beside training is not in the proof"
"""What an agreement does not say: averaged copies, say, on which no step depends."""


def trajectory(job: JobView, measured: Verification | None) -> str:
    """Return the verdict on reshapes: the measured one before the one that the hook expects."""
    because = f" ({job.trajectory_reason})" if job.trajectory_reason else ""
    proved = _proved(job)
    expected = _own_trajectory(job)
    if job.trajectory is not None:
        expected = f"{job.trajectory}{proved}{because}{f'; {BESIDE}' if proved else ''}"
    if measured is None:
        return expected
    found = f"{measured.verdict} (measured {measured.date}, {measured.steps} steps)"
    return f"{found}; expected {expected}" if expected else found


def _proved(job: JobView) -> str:
    """Return how often a first step after a restart has shown that the trajectory is exact."""
    if job.trajectory != "exact" or not job.proofs_agreed:
        return ""
    agreed, restarts = job.proofs_agreed, job.proofs_agreed + job.proofs_missing
    times = "once" if agreed == 1 else f"{agreed} times"
    return f", proved {times if agreed == restarts else f'in {agreed} of {restarts} restarts'}"


def proof(job: JobView) -> str:
    """Return what the newest first step after a restart shows."""
    if job.proof_result is None:
        return "off, as its record says" if job.proof == "off" else ""
    return job.proof_result


def _own_trajectory(job: JobView) -> str:
    """Return what a reshape changes in a program of which no one judges the trajectory."""
    may_restart = bool(job.may_restart) and job.program == MAY_RESTART
    if not may_restart and not job.reshape_ups and not job.reshape_downs:
        return ""
    if not may_restart:
        return "unknown (its program tells no verdict)"
    sizes = [job.size_before, job.size] if job.size_before and job.size else job.optional_gpus[::-1]
    if len(sizes) < 2:
        return "its own"
    change = "change" if job.processes == PER_GPU else "may change"
    return f"its own; samples per step {change} with the GPUs ({' → '.join(map(str, sizes))})"
