"""How many iterations a job has in all.

Does: takes the best that is known: what its process says, its record, its type's profile or curve.
Never: guesses where nothing is known. State: none.
"""

from __future__ import annotations

from reshape_controller.core.model import JobSpec, LengthUnit
from reshape_controller.core.profile_book import Curve, ProfileBook
from reshape_sidecar.wire import Progress


def total_steps(
    book: ProfileBook, spec: JobSpec, progress: Progress, curve: Curve | None
) -> float | None:
    """Iterations of the whole job; None while nobody can know. ``curve``: its own, if any."""
    length = spec.length
    if length is not None and length.unit is LengthUnit.TARGET_ACCURACY:
        curve = curve or book.learned_of(spec.job_type).curve
        return curve.step_of(length.value) if curve is not None else None
    if progress.total_steps is not None:
        return float(progress.total_steps)
    if length is None:
        return None
    if length.unit is LengthUnit.STEPS:
        return length.value
    profile = book.of(spec.job_type)
    recorded = profile.steps_per_epoch if profile is not None else None
    batches = book.batches(spec.job_type, spec.global_batch)
    per_epoch = progress.steps_per_epoch or (recorded and recorded / batches)
    return length.value * per_epoch if per_epoch else None
