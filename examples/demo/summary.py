"""From what the daemon said of the demo's jobs to summary.json. Pure: no file, no clock.

The metric names are those of every table of Reshape; ``costs`` and ``paced`` say what is real.
"""

from __future__ import annotations

from typing import Any

from reshape_controller.http.views import EventView, JobView
from reshape_sidecar.wire import PhaseTimes


def summarize(
    jobs: dict[str, JobView],
    events: list[EventView],
    starts: dict[tuple[str, int], PhaseTimes],
    containers: dict[str, list[str]],
    preset: str,
) -> dict[str, Any]:
    """The figures, and whether each promise held.

    ``starts``: phases by job id and generation; ``containers``: inits by job name.
    """
    every = list(jobs.values())
    begin_s = min(job.submitted_at_s for job in every)
    ends_s = [job.finished_at_s or begin_s for job in every]
    waits_s = [(job.started_at_s or begin_s) - job.submitted_at_s for job in every]
    turnarounds_s = [end_s - job.submitted_at_s for job, end_s in zip(every, ends_s, strict=True)]
    return {
        "preset": preset,
        "costs": "measured",
        "paced": True,
        "makespan_s": round(max(ends_s) - begin_s, 2),
        "mean_jct_s": round(sum(turnarounds_s) / len(every), 2),
        "mean_wait_s": round(sum(waits_s) / len(every), 2),
        "reshape_ups": sum(job.reshape_ups for job in every),
        "reshape_downs": sum(job.reshape_downs for job in every),
        "steps_lost": sum(job.steps_lost for job in every),
        "process_restarts": sum(job.process_restarts for job in every),
        "container_restarts": sum(job.container_restarts for job in every),
        "checks": checks(jobs, events, containers),
        "reshapes": [
            reshape for job in every for reshape in reshapes(job, events, starts, begin_s)
        ],
        "jobs": [one(job, events, begin_s) for job in every],
    }


def checks(
    jobs: dict[str, JobView], events: list[EventView], containers: dict[str, list[str]]
) -> dict[str, bool]:
    """What Reshape promises of this scenario."""
    first, second = jobs["job-1"], jobs["job-2"]
    shrink_s = when(events, first, "shrink-asked")
    ready_s = when(events, second, "initialized")
    grow_s = when(events, first, "grow-asked")
    end_s = second.finished_at_s
    return {
        "both_jobs_completed": all(job.state == "completed" for job in jobs.values()),
        "no_step_was_lost": all(job.steps_lost == 0 for job in jobs.values()),
        "every_step_was_done": all(job.step == job.total_steps for job in jobs.values()),
        "job_2_was_initialized_before_job_1_gave_gpus": bool(
            shrink_s and ready_s and ready_s <= shrink_s
        ),
        "job_1_got_its_gpus_back_when_job_2_ended": bool(grow_s and end_s and end_s <= grow_s),
        "each_job_lived_in_one_container": all(len(inits) == 1 for inits in containers.values())
        and all(job.container_restarts == 0 for job in jobs.values()),
    }


def one(job: JobView, events: list[EventView], begin_s: float) -> dict[str, Any]:
    """One job with its history; times in seconds since the first submission."""
    return {
        "name": job.name,
        "state": job.state,
        "steps": job.step,
        "total_steps": job.total_steps,
        "wait_s": round((job.started_at_s or begin_s) - job.submitted_at_s, 2),
        "jct_s": round((job.finished_at_s or begin_s) - job.submitted_at_s, 2),
        "steps_lost": job.steps_lost,
        "reshape_ups": job.reshape_ups,
        "reshape_downs": job.reshape_downs,
        "trajectory": job.trajectory,
        "events": [
            {"at_s": round(event.at_s - begin_s, 2), "kind": event.kind, "text": event.text}
            for event in events
            if event.job == job.id
        ],
    }


def reshapes(
    job: JobView,
    events: list[EventView],
    starts: dict[tuple[str, int], PhaseTimes],
    begin_s: float,
) -> list[dict[str, Any]]:
    """Each reshape of a job by phase. ``rest_s`` is what is neither save, stop nor process start:
    the coordinator's, the SideCar's and the network's part."""
    found = []
    own = [event for event in events if event.job == job.id]
    for asked in (event for event in own if event.kind in ("shrink-asked", "grow-asked")):
        done = next(
            (e for e in own if e.kind == "first-step" and e.generation == asked.generation), None
        )
        times = starts.get((job.id, asked.generation))
        if done is None or times is None:
            continue
        phases = {
            name: getattr(times, name)
            for name in ("save_s", "stop_s", "import_s", "build_s", "restore_s", "first_step_s")
        }
        total_s = done.at_s - asked.at_s
        found.append(
            {
                "job": job.name,
                "from_gpus": asked.size,
                "to_gpus": done.size,
                "at_s": round(asked.at_s - begin_s, 2),
                "total_s": round(total_s, 3),
                **{name: None if s is None else round(s, 3) for name, s in phases.items()},
                "sidecar_s": None if times.sidecar_s is None else round(times.sidecar_s, 3),
                "rest_s": round(total_s - sum(s or 0.0 for s in phases.values()), 3),
            }
        )
    return found


def when(events: list[EventView], job: JobView, kind: str) -> float | None:
    """Time of a job's first event of a kind; None without."""
    return next((e.at_s for e in events if e.job == job.id and e.kind == kind), None)
