"""The reshapes that a timeline shows: where a job trains on another number of GPUs than before.

Pure: no clock, no picture. A restart at the same size is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from reshape_controller.http.timeline import JobLane, Timeline


@dataclass(frozen=True, slots=True)
class Reshape:
    """``from_s``: it no longer trains on the old GPUs; ``to_s``: it trains on the new ones."""

    job: str
    name: str
    from_s: float
    to_s: float
    from_gpus: int
    to_gpus: int

    @property
    def down(self) -> bool:
        return self.to_gpus < self.from_gpus


def reshapes_of(timeline: Timeline) -> tuple[Reshape, ...]:
    """Every reshape, in order of time."""
    found = [reshape for job in timeline.jobs for reshape in _of_job(job)]
    return tuple(sorted(found, key=lambda reshape: (reshape.from_s, reshape.job)))


def _of_job(job: JobLane) -> list[Reshape]:
    found = []
    trained = [span for span in job.spans if span.phase == "training"]
    for before, after in pairwise(trained):
        if after.size != before.size and before.to_s is not None:
            found.append(
                Reshape(job.id, job.name, before.to_s, after.from_s, before.size, after.size)
            )
    return found
