"""Iterations per second over time, from samples of where a job was. Pure.

Does: counts steps over a window of time, within one start of the training process. Never: smooths
over a restart: between the last step of one process and the first of the next the rate is zero.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import groupby

from metrics import begin_of, end_of
from observed import Run, Sample

from reshape_gpu.values import JobView

WINDOW_S = 5.0
"""Steps are counted over so long: new ones are heard of once a second."""
EVERY_S = 0.5


def rates(run: Run, job: JobView) -> tuple[list[float], list[float]]:
    """Seconds since the first submission, and the iterations per second then."""
    begin_s = begin_of(run)
    own = [sample for sample in run.samples if sample.job == job.id]
    times_s: list[float] = [0.0]
    values: list[float] = [0.0]
    for _, group in groupby(own, key=lambda sample: (sample.attempt, sample.generation)):
        known = changes(list(group))
        if len(known) < 2:
            continue
        first_s, last_s = known[0][0], known[-1][0]
        times_s += [first_s - begin_s, first_s - begin_s]
        values += [0.0, rate(known, first_s)]
        for number in range(1, int((last_s - first_s) / EVERY_S) + 1):
            at_s = first_s + number * EVERY_S
            times_s.append(at_s - begin_s)
            values.append(rate(known, at_s))
        times_s += [last_s - begin_s, last_s - begin_s]
        values += [rate(known, last_s), 0.0]
    return [*times_s, end_of(run) - begin_s], [*values, 0.0]


def changes(samples: list[Sample]) -> list[tuple[float, float]]:
    """When each new step count was first seen: (Unix seconds, steps)."""
    found: list[tuple[float, float]] = []
    for sample in samples:
        if not found or sample.step > found[-1][1]:
            found.append((sample.at_s, float(sample.step)))
    return found


def rate(known: list[tuple[float, float]], at_s: float) -> float:
    """Steps in the window around ``at_s`` over the part of it that is known."""
    from_s = max(known[0][0], at_s - WINDOW_S / 2)
    to_s = min(known[-1][0], at_s + WINDOW_S / 2)
    if to_s <= from_s:
        return 0.0
    return (_steps(known, to_s) - _steps(known, from_s)) / (to_s - from_s)


def _steps(known: list[tuple[float, float]], at_s: float) -> float:
    """Steps at a time, between two of the known ones in proportion."""
    after = bisect_right(known, at_s, key=lambda entry: entry[0])
    if after == 0:
        return known[0][1]
    if after == len(known):
        return known[-1][1]
    (from_s, from_steps), (to_s, to_steps) = known[after - 1], known[after]
    return from_steps + (to_steps - from_steps) * (at_s - from_s) / (to_s - from_s)
