"""The GPU counts that a job of a trace could have taken besides its own: a choice, not a fact.

A trace says on how many GPUs a job ran, and nothing of other counts. Each choice is a rule for all
jobs, so that a comparison can be repeated under another one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol


class Elastic(StrEnum):
    """Which GPU counts a job may take besides those that the trace says."""

    NONE = "none"
    """Its own alone."""
    HALVE = "halve"
    """Also its half, and the half of that, while it is whole: never more than it had."""
    FREE = "free"
    """Also powers of two up to the largest count."""


class Sized(Protocol):
    """A job of a trace."""

    @property
    def known_gpus(self) -> tuple[int, ...]:
        """The GPU counts that the trace says; empty: all sizes."""
        ...

    @property
    def optional_gpus(self) -> tuple[int, ...]: ...

    @property
    def workers(self) -> int: ...


class Effect(NamedTuple):
    """What a choice does to the jobs of a trace."""

    elastic_jobs: int
    """Jobs with more than one count."""
    fewest_gpus: int
    """Sum over all jobs, each at its smallest count."""
    most_gpus: int


def is_assumed(job: Sized) -> bool:
    """Return True if a job has GPU counts that no trace says."""
    return bool(job.known_gpus) and set(job.known_gpus) != set(job.optional_gpus)


def assumed_text(jobs: Sequence[Sized]) -> str:
    """Return for how many jobs sizes are assumed, in words; empty if for none."""
    count = sum(map(is_assumed, jobs))
    return f"elastic sizes are assumed for {count} of {len(jobs)} jobs" if count else ""


def sizes_under(choice: Elastic, number: int, workers: int, largest: int) -> tuple[int, ...]:
    """Return the GPU counts of a job on ``number`` GPUs; its workers share each equally."""
    found = {number}
    if choice is Elastic.HALVE:
        while number % 2 == 0:
            number //= 2
            found.add(number)
    elif choice is Elastic.FREE:
        found |= {2**n for n in range(int(math.log2(max(largest, number))) + 1)}
    return tuple(sorted(size for size in found if size % workers == 0))


def effects(jobs: Iterable[Sized], largest: int) -> dict[Elastic, Effect]:
    """Return what each choice does to jobs; counts that a trace says are under none of them."""
    found = dict.fromkeys(Elastic, Effect(0, 0, 0))
    for job in jobs:
        known = job.known_gpus or job.optional_gpus
        for choice, before in found.items():
            own = known
            if len(known) == 1:
                own = sizes_under(choice, known[0], job.workers, largest)
            found[choice] = Effect(
                before.elastic_jobs + (len(own) > 1),
                before.fewest_gpus + min(own),
                before.most_gpus + max(own),
            )
    return found
