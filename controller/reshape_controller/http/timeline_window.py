"""A part of a timeline, and fewer spans for a long one.

Does: leaves out what is outside of a stretch of time; merges spans that are too short to be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from reshape_controller.http.timeline import Span, Timeline

FINEST = 4096
"""Part of the window below which spans are merged first."""


def until(timeline: Timeline, to_s: float) -> Timeline:
    """Return the timeline up to a time, without what begins later; it ends at ``to_s`` at most."""
    if to_s >= timeline.to_s:
        return timeline
    jobs = tuple(job for job in timeline.jobs if job.submitted_at_s < to_s)
    cut = replace(timeline, to_s=max(to_s, timeline.from_s), jobs=jobs)
    return _lanes(cut, lambda spans: tuple(span for span in spans if span.from_s < to_s))


def merged(timeline: Timeline, max_spans: int) -> Timeline:
    """Return the timeline with at most ``max_spans`` spans, but at least one for each lane.

    Neighbours that are shorter than a part of the window, with no longer gap between them, become
    a span, which says how many it stands for (``merged``) and has the phase and job of the longest
    of them.
    """
    window_s = max(timeline.to_s - timeline.from_s, 1e-9)
    parts = FINEST
    found = timeline
    while _count(found) > max_spans and parts >= 1:
        least_s = window_s / parts
        found = _lanes(timeline, partial(_merge, least_s=least_s, now_s=timeline.to_s))
        parts //= 2
    return found


def _lanes(timeline: Timeline, change: Callable[[tuple[Span, ...]], tuple[Span, ...]]) -> Timeline:
    return replace(
        timeline,
        gpus=tuple(replace(lane, spans=change(lane.spans)) for lane in timeline.gpus),
        jobs=tuple(replace(lane, spans=change(lane.spans)) for lane in timeline.jobs),
    )


def _count(timeline: Timeline) -> int:
    on_gpus = sum(len(lane.spans) for lane in timeline.gpus)
    return on_gpus + sum(len(lane.spans) for lane in timeline.jobs)


def _merge(spans: tuple[Span, ...], least_s: float, now_s: float) -> tuple[Span, ...]:
    """Merge spans of one lane that are shorter than ``least_s`` with those after them, until they
    are as long together, or a gap as long follows."""
    found: list[Span] = []
    run: list[Span] = []
    for span in spans:
        if run and _is_complete(run, span.from_s, least_s, now_s):
            found.append(_one(run, now_s))
            run = []
        if not run and _length([span], now_s) >= least_s:
            found.append(span)
            continue
        run.append(span)
    if run:
        found.append(_one(run, now_s))
    return tuple(found)


def _is_complete(run: list[Span], next_s: float, least_s: float, now_s: float) -> bool:
    return next_s - _end(run[-1], now_s) >= least_s or _length(run, now_s) >= least_s


def _end(span: Span, now_s: float) -> float:
    return now_s if span.to_s is None else span.to_s


def _length(run: list[Span], now_s: float) -> float:
    return _end(run[-1], now_s) - run[0].from_s


def _one(run: list[Span], now_s: float) -> Span:
    longest = max(run, key=lambda span: _length([span], now_s))
    count = sum(span.merged for span in run)
    return replace(longest, from_s=run[0].from_s, to_s=run[-1].to_s, merged=count)
