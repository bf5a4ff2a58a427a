"""The reshapes that a timeline shows: where a job was stopped and trains on another number of GPUs.

Pure: no clock, no picture. A restart at the same size is none, and a start that failed is none.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_controller.http.timeline import JobLane, Timeline

_ON_GPUS = ("starting", "training")
_LEAVES = ("saving", "stopping")


@dataclass(frozen=True, slots=True)
class ReshapeSpan:
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


def reshapes_of(timeline: Timeline) -> tuple[ReshapeSpan, ...]:
    """Every reshape, in order of time."""
    found = [reshape for job in timeline.jobs for reshape in _of_job(job)]
    return tuple(sorted(found, key=lambda reshape: (reshape.from_s, reshape.job)))


def _of_job(job: JobLane) -> list[ReshapeSpan]:
    found: list[ReshapeSpan] = []
    size, stopped_s, before = 0, None, 0
    for span in job.spans:
        if span.phase in _LEAVES and stopped_s is None:
            stopped_s, before = span.from_s, size
        elif span.phase in _ON_GPUS:
            size = span.size
        if span.phase == "training":
            if stopped_s is not None and before not in (0, size):
                found.append(ReshapeSpan(job.id, job.name, stopped_s, span.from_s, before, size))
            stopped_s = None
    return found
