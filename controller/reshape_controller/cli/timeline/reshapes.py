"""The reshapes of a timeline: stops of a job that then trains on another number of GPUs.

A restart at the same size and a failed start are no reshapes. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_controller.http.timeline import JobLane, Timeline

_ON_GPUS = ("starting", "training")
_LEAVES = ("saving", "stopping")


@dataclass(frozen=True, slots=True)
class ReshapeSpan:
    """A reshape, from the end of training on the old GPUs to its start on the new ones."""

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
    """Return all reshapes, in the order of time."""
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
