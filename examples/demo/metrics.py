"""From what one run left behind to its figures. Pure: no file, no clock.

The names and meanings are those of every table of Reshape. ``gpu_idle_s`` counts GPU-seconds
between the first submission and the last completion in which nobody trains: unallocated (nobody's),
reserved (kept for a job), starting (its process loads, builds, restores and does its first step),
stopping (saving, stopping, being verified).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from observed import Run

from reshape_controller.http.timeline import Span
from reshape_gpu.values import EventView, JobView
from reshape_sidecar.wire import PhaseTimes

ASKED = ("shrink-asked", "grow-asked", "relaunch-asked")
IDLE = {
    "reserved": "gpu_reserved_s",
    "starting": "gpu_starting_s",
    "saving": "gpu_stopping_s",
    "stopping": "gpu_stopping_s",
    "releasing": "gpu_stopping_s",
}
"""From a phase of a GPU to the part of ``gpu_idle_s`` that it belongs to; training is none."""
STARTS = ("import_s", "build_s", "restore_s", "position_s", "first_step_s")


@dataclass(frozen=True, slots=True)
class Reshape:
    """A change of a running job's size, from the request until it trains again, in seconds.

    ``container_stop_s`` and ``container_start_s`` are None where the container stayed.
    ``rest_s`` is what none of the phases has: coordinator, SideCar, verification, messages.
    """

    job: str
    from_gpus: int
    to_gpus: int
    at_s: float
    total_s: float
    save_s: float | None
    stop_s: float | None
    container_stop_s: float | None
    container_start_s: float | None
    import_s: float | None
    build_s: float | None
    restore_s: float | None
    position_s: float | None
    first_step_s: float | None
    sidecar_s: float | None
    """The SideCar's own part; it is in ``rest_s`` too."""
    rest_s: float

    @property
    def down(self) -> bool:
        return self.to_gpus < self.from_gpus

    @property
    def start_s(self) -> float:
        """Start of the training process until its first step is done."""
        return sum(getattr(self, name) or 0.0 for name in STARTS)


@dataclass(frozen=True, slots=True)
class Start:
    """A job's first start, from its submission to its first step, in seconds."""

    job: str
    queued_s: float
    container_start_s: float
    gpu_wait_s: float
    """Initialised, and its GPUs not free yet."""
    process_start_s: float

    @property
    def total_s(self) -> float:
        return self.queued_s + self.container_start_s + self.gpu_wait_s + self.process_start_s


def begin_of(run: Run) -> float:
    """The first submission, Unix seconds."""
    return min(job.submitted_at_s for job in run.jobs)


def end_of(run: Run) -> float:
    """The last completion, Unix seconds."""
    return max(job.finished_at_s or job.submitted_at_s for job in run.jobs)


def metrics(run: Run) -> dict[str, Any]:
    """The figures of design and tables, by name."""
    begin_s, end_s = begin_of(run), end_of(run)
    jcts_s = sorted((job.finished_at_s or begin_s) - job.submitted_at_s for job in run.jobs)
    waits_s = [(job.started_at_s or begin_s) - job.submitted_at_s for job in run.jobs]
    lives_s = [(job.finished_at_s or begin_s) - (job.started_at_s or begin_s) for job in run.jobs]
    found = reshapes(run)
    ups, downs = ([r for r in found if r.down is down] for down in (False, True))
    first_starts_s = sum(start.total_s - start.queued_s for start in starts(run))
    pauses_s = sum(reshape.total_s for reshape in found)
    idle = gpu_idle(run)
    whole_s = (end_s - begin_s) * len(run.timeline.gpus)
    return {
        "makespan_s": end_s - begin_s,
        "mean_jct_s": sum(jcts_s) / len(jcts_s),
        "median_jct_s": median(jcts_s),
        "p95_jct_s": jcts_s[max(0, -(-len(jcts_s) * 95 // 100) - 1)],
        "mean_wait_s": sum(waits_s) / len(waits_s),
        "gpu_use_ratio": 1.0 - sum(idle.values()) / whole_s,
        "gpu_idle_s": sum(idle.values()),
        **idle,
        "overhead_ratio": pauses_s / sum(lives_s),
        "overhead_with_starts_ratio": (pauses_s + first_starts_s) / sum(lives_s),
        "reshape_ups": len(ups),
        "reshape_downs": len(downs),
        "reshape_up_s": _mean([reshape.total_s for reshape in ups]),
        "reshape_down_s": _mean([reshape.total_s for reshape in downs]),
        "steps_lost": sum(job.steps_lost for job in run.jobs),
        "process_restarts": len(run.processes) - len({p.job for p in run.processes}),
        "container_restarts": sum(job.container_restarts for job in run.jobs),
        "late_steps": sum(process.late_steps for process in run.processes),
        "late_steps_ratio": sum(p.late_steps for p in run.processes)
        / max(1, sum(job.step for job in run.jobs)),
    }


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def gpu_idle(run: Run) -> dict[str, float]:
    """GPU-seconds in which no process trains, by part."""
    begin_s, end_s = begin_of(run), end_of(run)
    found = {"gpu_unallocated_s": 0.0, **dict.fromkeys(IDLE.values(), 0.0)}
    for gpu in run.timeline.gpus:
        held_s = 0.0
        for span in gpu.spans:
            length_s = _within(span, begin_s, end_s)
            held_s += length_s
            if span.phase in IDLE:
                found[IDLE[span.phase]] += length_s
        found["gpu_unallocated_s"] += end_s - begin_s - held_s
    return found


def _within(span: Span, begin_s: float, end_s: float) -> float:
    to_s = end_s if span.to_s is None else span.to_s
    return max(0.0, min(to_s, end_s) - max(span.from_s, begin_s))


def reshapes(run: Run) -> list[Reshape]:
    """Every change of a running job's size, in order of time."""
    found = [reshape for job in run.jobs for reshape in _reshapes_of(run, job)]
    return sorted(found, key=lambda reshape: (reshape.at_s, reshape.job))


def _reshapes_of(run: Run, job: JobView) -> Iterable[Reshape]:
    events = run.of(job)
    for number, asked in enumerate(events):
        later = events[number + 1 :]
        done = _first(later, "first-step")
        if asked.kind not in ASKED or done is None or _refused(later, done):
            continue
        stop = run.phases.get((job.id, asked.attempt, asked.generation), PhaseTimes())
        start = run.phases.get((job.id, done.attempt, done.generation), PhaseTimes())
        own = {
            "save_s": stop.save_s,
            "stop_s": stop.stop_s,
            "container_stop_s": None,
            "container_start_s": None,
            **{name: getattr(start, name) for name in STARTS},
        }
        if asked.attempt != done.attempt:
            own["container_stop_s"] = _between(later, "stopped", "container-gone")
            own["container_start_s"] = _between(later, "launched", "initialized")
        total_s = done.at_s - asked.at_s
        yield Reshape(
            job=job.name,
            from_gpus=asked.size,
            to_gpus=done.size,
            at_s=asked.at_s - begin_of(run),
            total_s=total_s,
            sidecar_s=start.sidecar_s,
            rest_s=total_s - sum(value or 0.0 for value in own.values()),
            **own,
        )


def _refused(later: tuple[EventView, ...], done: EventView) -> bool:
    return any(event.kind == "refused" for event in later[: later.index(done)])


def starts(run: Run) -> list[Start]:
    """The first start of each job."""
    found = []
    for job in run.jobs:
        events = run.of(job)
        moments = [
            _first(events, kind)
            for kind in ("submitted", "launched", "initialized", "granted", "first-step")
        ]
        if all(moments):
            at_s = [moment.at_s for moment in moments if moment is not None]
            parts = [later - earlier for earlier, later in pairwise(at_s)]
            found.append(Start(job.name, *parts))
    return found


def _first(events: Iterable[EventView], kind: str) -> EventView | None:
    return next((event for event in events if event.kind == kind), None)


def _between(events: tuple[EventView, ...], start: str, end: str) -> float | None:
    begin, finish = _first(events, start), _first(events, end)
    return None if begin is None or finish is None else finish.at_s - begin.at_s


def promises(run: Run) -> dict[str, bool]:
    """Return the promises of every run, by name, with more of them for living containers."""
    kept = {
        "both_jobs_completed": all(job.state == "completed" for job in run.jobs),
        "every_step_was_done": all(job.step == job.total_steps for job in run.jobs),
        "no_step_was_lost": all(job.steps_lost == 0 for job in run.jobs),
    }
    if run.preset == "adaptive":
        kept["each_job_lived_in_one_container"] = all(n == 1 for n in run.containers.values())
        kept["newcomers_were_initialized_before_gpus_were_taken"] = _early(run)
    return kept


def _early(run: Run) -> bool:
    """Each shrink was asked only once some other job had been initialised and waited."""
    for job in run.jobs:
        for asked in run.of(job):
            others = [e for other in run.jobs if other is not job for e in run.of(other)]
            if asked.kind == "shrink-asked" and not any(
                e.kind == "initialized" and e.at_s <= asked.at_s for e in others
            ):
                return False
    return True
