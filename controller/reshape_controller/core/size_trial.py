"""Whether a job trains at a size that it got by a reshape, and the way back if it does not.

A program that reports no steps counts as training soon after its start, long before it has loaded
its checkpoint, say. So a size is proven only after ``limits.TRIAL_S``. Pure values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reshape_controller.core.limits import TRIAL_S


@dataclass(frozen=True, slots=True)
class SizeTrial:
    """What a job's first steps say about its sizes."""

    before: int = 0
    """GPUs that it trained on before those of its last first step; 0: none."""
    since_s: float | None = None
    """Time of its last first step; None: there was none."""
    proven: tuple[int, ...] = ()
    """Sizes at which it has trained for ``TRIAL_S`` at a stretch."""
    back_to: int = 0
    """The only size at which it starts next, because it failed soon after its start at another; 0:
    it may start at each of its sizes."""

    def begun(self, size: int, last_size: int, now_s: float) -> SizeTrial:
        """Return the trial of ``size`` after a first step; ``last_size``: of the one before."""
        before = last_size if last_size != size else self.before
        return replace(self, before=before, since_s=now_s, back_to=0)

    def ended(self, size: int, now_s: float) -> SizeTrial:
        """Return what is known once the job no longer trains at ``size``."""
        if self.since_s is None or size in self.proven or now_s - self.since_s < TRIAL_S:
            return self
        return replace(self, proven=(*self.proven, size))

    def way_back(self, size: int, last_size: int, struck: tuple[int, ...]) -> int:
        """Return the size to which a job goes back that failed at ``size``; 0: there is none, as
        this size is proven, or no other is known to work. ``last_size``: of its last first step."""
        before = self.before if last_size == size else last_size
        return 0 if size in self.proven or before in (size, *struck) else before
