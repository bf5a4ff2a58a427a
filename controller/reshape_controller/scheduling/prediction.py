"""Predicted times of single jobs, as values: the phases of one job, and those of a donor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from reshape_controller.core.job_estimate import SmallerSize


@dataclass(frozen=True, slots=True)
class Prediction:
    """The phases that a job goes through until it has left."""

    phases: tuple[tuple[str, float], ...]
    """Each phase's name and seconds, in the order in which they come."""

    @property
    def total_s(self) -> float:
        """The sum of all phases, in seconds."""
        return sum([seconds for _, seconds in self.phases])


class DonorTimes(NamedTuple):
    """The times of a running job that gives GPUs."""

    smaller: list[SmallerSize]
    steps: float
    """Iterations that are left if it is reshaped now."""
    fixed_s: float
    """Seconds beside them until it has left."""
    release_s: float
    """Seconds from the request until its GPUs are free."""
    reshape_s: float
    """Seconds without training in a reshape."""
