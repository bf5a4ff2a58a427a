"""A timeline as Trace Event JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing show.

The document has a track for each GPU, a track for each job, and an instant for each reshape. Times
are microseconds since the timeline's begin, as the format requires. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from reshape_controller.cli.timeline.reshapes import ReshapeSpan, reshapes_of
from reshape_controller.http.timeline import JobLane, Span, Timeline

GPUS, JOBS = 1, 2
"""The two groups of tracks; the format calls a group a process and a track a thread."""
MICROSECONDS = 1e6


def trace_events(timeline: Timeline, said: dict[str, str]) -> dict[str, Any]:
    """Return the document. ``said`` is its metadata (for example what was paced or assumed)."""
    names = {job.id: job.name for job in timeline.jobs}
    from_s = min((job.submitted_at_s for job in timeline.jobs), default=timeline.from_s)
    events: list[dict[str, Any]] = [_group(GPUS, "GPUs"), _group(JOBS, "jobs")]
    for number, gpu in enumerate(timeline.gpus, start=1):
        events.append(_track(GPUS, number, gpu.name))
        events += _spans(gpu.spans, GPUS, number, timeline, from_s, names)
    tracks = {job.id: number for number, job in enumerate(timeline.jobs, start=1)}
    for job in timeline.jobs:
        events.append(_track(JOBS, tracks[job.id], job.name))
        events += _spans(job.spans, JOBS, tracks[job.id], timeline, from_s, {job.id: ""})
        events += _end(job, tracks[job.id], from_s)
    events += [_mark(reshape, tracks[reshape.job], from_s) for reshape in reshapes_of(timeline)]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": said}


def _group(group: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": group, "tid": 0, "name": "process_name", "args": {"name": name}}


def _track(group: int, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": group, "tid": track, "name": "thread_name", "args": {"name": name}}


def _spans(
    spans: Iterable[Span],
    group: int,
    track: int,
    timeline: Timeline,
    from_s: float,
    names: dict[str, str],
) -> Iterable[dict[str, Any]]:
    for span in spans:
        to_s = timeline.to_s if span.to_s is None else span.to_s
        name = names.get(span.job or "", span.job or "")
        yield {
            "ph": "X",
            "pid": group,
            "tid": track,
            "ts": _us(span.from_s - from_s),
            "dur": _us(to_s - span.from_s),
            "cat": span.phase,
            "name": f"{span.phase} {name}".strip(),
            "args": {"job": span.job or "", "gpus": span.size},
        }


def _end(job: JobLane, track: int, from_s: float) -> list[dict[str, Any]]:
    if job.ended_at_s is None:
        return []
    lost = {"steps_lost": job.steps_lost, "steps_lost_known": job.steps_lost_known}
    return [_instant(track, job.ended_at_s - from_s, job.state, lost)]


def _mark(reshape: ReshapeSpan, track: int, from_s: float) -> dict[str, Any]:
    way = "down" if reshape.down else "up"
    args = {
        "from_gpus": reshape.from_gpus,
        "to_gpus": reshape.to_gpus,
        "pause_s": round(reshape.to_s - reshape.from_s, 3),
    }
    name = f"reshape {way}: {reshape.from_gpus} to {reshape.to_gpus}"
    return _instant(track, reshape.from_s - from_s, name, args)


def _instant(track: int, at_s: float, name: str, args: dict[str, Any]) -> dict[str, Any]:
    return {
        "ph": "i",
        "s": "t",
        "pid": JOBS,
        "tid": track,
        "ts": _us(at_s),
        "name": name,
        "args": args,
    }


def _us(seconds: float) -> int:
    return round(seconds * MICROSECONDS)
