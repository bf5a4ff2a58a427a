"""Runs of the demo as values, made by hand, for tests of its figures; and the demo's own modules.

Two stories with round times: Job 1 shrinks and grows inside its container, and the same by ending
containers. Nothing is started here.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples" / "demo"
if str(DEMO) not in sys.path:
    sys.path.append(str(DEMO))

from observed import Process, Run, Sample  # noqa: E402

from reshape_controller.http.timeline import GpuLane, JobLane, Span, Timeline  # noqa: E402
from reshape_gpu.values import EventView, JobView  # noqa: E402
from reshape_sidecar.wire import PhaseTimes  # noqa: E402

BEGIN_S = 1_000.0
"""The first submission, Unix seconds."""


def job(
    name: str,
    submitted_s: float,
    started_s: float,
    finished_s: float,
    container_restarts: int = 0,
) -> JobView:
    return JobView(
        id=f"{name}-id",
        name=name,
        user="ada",
        state="completed",
        stage="none",
        reason="",
        seq=1,
        submitted_at_s=BEGIN_S + submitted_s,
        started_at_s=BEGIN_S + started_s,
        finished_at_s=BEGIN_S + finished_s,
        step=100,
        total_steps=100,
        container_restarts=container_restarts,
    )


def event(
    name: str, at_s: float, kind: str, size: int = 0, attempt: int = 1, generation: int = 0
) -> EventView:
    return EventView(f"{name}-id", BEGIN_S + at_s, kind, kind, attempt, generation, size)


def spans(name: str, *parts: tuple[str, float, float, int]) -> tuple[Span, ...]:
    return tuple(
        Span(phase, BEGIN_S + from_s, BEGIN_S + to_s, f"{name}-id", size)
        for phase, from_s, to_s, size in parts
    )


def samples(
    name: str, generation: int, from_s: float, to_s: float, first: int, rate: float
) -> tuple[Sample, ...]:
    """One look each half second, while steps are done at ``rate`` per second."""
    count = int((to_s - from_s) * 2) + 1
    return tuple(
        Sample(f"{name}-id", BEGIN_S + from_s + i / 2, 1, generation, first + int(i / 2 * rate))
        for i in range(count)
    )


JOB_1 = (
    ("initializing", 0, 1, 0), ("starting", 1, 5, 4), ("training", 5, 20, 4),
    ("saving", 20, 20.5, 4), ("stopping", 20.5, 21, 4), ("starting", 21, 25, 2),
    ("training", 25, 45, 2), ("saving", 45, 45.5, 2), ("stopping", 45.5, 46, 2),
    ("starting", 46, 50, 4), ("training", 50, 80, 4),
)  # fmt: skip
JOB_2 = (
    ("initializing", 18, 19, 0), ("initialized", 19, 21, 0), ("starting", 21, 26, 2),
    ("training", 26, 44, 2),
)  # fmt: skip


def gpu(index: int, *parts: tuple[Span, ...]) -> GpuLane:
    return GpuLane(f"sim-{index}", "local", index, tuple(span for part in parts for span in part))


HISTORY = (
    event("job-1", 0, "submitted"),
    event("job-1", 0, "launched"),
    event("job-1", 1, "initialized"),
    event("job-1", 1, "granted", 4, generation=2),
    event("job-1", 5, "first-step", 4, generation=2),
    event("job-2", 18, "submitted"),
    event("job-2", 18, "launched"),
    event("job-2", 19, "initialized"),
    event("job-1", 20, "shrink-asked", 4, generation=3),
    event("job-1", 20.5, "stopping", 4, generation=3),
    event("job-1", 21, "stopped", 4, generation=3),
    event("job-2", 21, "granted", 2, generation=2),
    event("job-1", 25, "first-step", 2, generation=3),
    event("job-2", 26, "first-step", 2, generation=2),
    event("job-2", 44, "completed"),
    event("job-1", 45, "grow-asked", 2, generation=4),
    event("job-1", 45.5, "stopping", 2, generation=4),
    event("job-1", 46, "stopped", 2, generation=4),
    event("job-1", 50, "first-step", 4, generation=4),
    event("job-1", 80, "completed", 4),
)


def in_place() -> Run:
    """Makespan 80 s; down 5 s, up 5 s; Job 2 waits 3 s for its GPUs."""
    kept = tuple(span for span in spans("job-1", *JOB_1) if span.phase != "initializing")
    reserved = spans("job-1", ("reserved", 0, 1, 0))
    given = tuple(span for span in kept if span.from_s < BEGIN_S + 20.9)
    back = tuple(span for span in kept if span.from_s >= BEGIN_S + 46)
    second = (
        *spans("job-1", ("releasing", 21, 21, 2)),
        *spans("job-2", ("starting", 21, 26, 2), ("training", 26, 44, 2), ("releasing", 44, 45, 0)),
        *spans("job-1", ("reserved", 45, 46, 2)),
    )
    lanes = (
        *(gpu(index, reserved, kept) for index in (0, 1)),
        *(gpu(index, reserved, given, second, back) for index in (2, 3)),
    )
    times = PhaseTimes(0.4, 0.4, 0.1, 2.0, 1.0, 0.5, 0.5)
    return Run(
        preset="adaptive",
        jobs=(job("job-1", 0, 1, 80), job("job-2", 18, 21, 44)),
        history=HISTORY,
        timeline=Timeline(
            seq=9,
            from_s=BEGIN_S - 1,
            to_s=BEGIN_S + 81,
            gpus=lanes,
            jobs=(
                JobLane(
                    "job-1-id",
                    "job-1",
                    "completed",
                    BEGIN_S,
                    BEGIN_S + 80,
                    0,
                    spans("job-1", *JOB_1),
                ),
                JobLane(
                    "job-2-id",
                    "job-2",
                    "completed",
                    BEGIN_S + 18,
                    BEGIN_S + 44,
                    0,
                    spans("job-2", *JOB_2),
                ),
            ),
        ),
        samples=(
            *samples("job-1", 2, 5, 20, 1, 4.0),
            *samples("job-1", 3, 25, 45, 61, 2.0),
            *samples("job-1", 4, 50, 80, 101, 4.0),
            *samples("job-2", 2, 26, 44, 1, 2.0),
        ),
        phases={("job-1-id", 1, 3): times, ("job-1-id", 1, 4): times},
        processes=(
            Process("job-1-id", 1, 1, 0),
            Process("job-1-id", 2, 1, 2),
            Process("job-1-id", 3, 1, 0),
            Process("job-2-id", 1, 1, 1),
        ),
        containers={"job-1-id": 1, "job-2-id": 1},
    )


def relaunched() -> Run:
    """One relaunch of Job 1 from 4 to 2 GPUs: 12 s; 2 s end, 1 s start of its container."""
    base = in_place()
    history = (
        event("job-1", 0, "submitted"),
        event("job-1", 0, "launched"),
        event("job-1", 1, "initialized"),
        event("job-1", 1, "granted", 4, generation=2),
        event("job-1", 5, "first-step", 4, generation=2),
        event("job-1", 20, "relaunch-asked", 4, generation=3),
        event("job-1", 20.5, "stopping", 4, generation=3),
        event("job-1", 21, "stopped", 4, generation=3),
        event("job-1", 23, "container-gone", 4, generation=3),
        event("job-1", 25, "launched", attempt=2, generation=4),
        event("job-1", 26, "initialized", attempt=2, generation=4),
        event("job-1", 26, "granted", 2, attempt=2, generation=5),
        event("job-1", 32, "first-step", 2, attempt=2, generation=5),
        event("job-1", 80, "completed", 2, attempt=2),
    )
    stop, start = (
        PhaseTimes(save_s=0.5, stop_s=0.5),
        PhaseTimes(None, None, 0.1, 3.0, 1.0, 1.0, 1.0),
    )
    return Run(
        preset="case-study-termination",
        jobs=(job("job-1", 0, 1, 80, container_restarts=1),),
        history=history,
        timeline=base.timeline,
        samples=(),
        phases={("job-1-id", 1, 3): stop, ("job-1-id", 2, 5): start},
        processes=(Process("job-1-id", 1, 1, 0), Process("job-1-id", 2, 2, 0)),
        containers={"job-1-id": 2},
    )
