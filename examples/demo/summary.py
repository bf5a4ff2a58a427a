"""From the runs to summary.json. Pure: no file, no clock.

The structure: ``costs.measured.presets.NAME`` and, where they were asked for,
``costs.assumed.presets.NAME`` hold the figures of a preset (mean over its repeats), their spread,
and each run with its reshapes, starts, promises and history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from metrics import Reshape, begin_of, metrics, promises, reshapes, starts
from observed import Run

from reshape_gpu.values import JobView
from reshape_sidecar.device_truth import LATE_STEPS_RATIO_MAX

DIGITS = 3
PHASES = {
    "save_s": ("save_s",),
    "stop_s": ("stop_s",),
    "container_stop_s": ("container_stop_s",),
    "container_start_s": ("container_start_s",),
    "start_s": ("import_s", "build_s", "restore_s", "position_s", "first_step_s"),
    "rest_s": ("rest_s",),
}


def summarize(runs: Mapping[str, Mapping[str, Sequence[Run]]], labels: Mapping[str, Any]) -> Any:
    """``runs`` by cost set (``measured``, ``assumed``) and preset; ``labels``: what else is to be
    said of a cost set."""
    every = [run for presets in runs.values() for repeats in presets.values() for run in repeats]
    late_steps = sum(process.late_steps for run in every for process in run.processes)
    worst = max((metrics(run)["late_steps_ratio"] for run in every), default=0.0)
    return _rounded(
        {
            "paced": True,
            "late_steps": late_steps,
            "late_steps_ratio_max": worst,
            "valid": worst <= LATE_STEPS_RATIO_MAX,
            "repeats": max(len(r) for presets in runs.values() for r in presets.values()),
            "costs": {
                name: {
                    **labels.get(name, {}),
                    "presets": {preset: _preset(repeats) for preset, repeats in presets.items()},
                }
                for name, presets in runs.items()
            },
        }
    )


def _preset(repeats: Sequence[Run]) -> dict[str, Any]:
    figures = [metrics(run) for run in repeats]
    return {
        **{name: _mean([one[name] for one in figures]) for name in figures[0]},
        "reshape_down_phases_s": _phases(repeats, down=True),
        "reshape_up_phases_s": _phases(repeats, down=False),
        "spread": {
            name: [min(one[name] for one in figures), max(one[name] for one in figures)]
            for name in figures[0]
        },
        "runs": [_run(run) for run in repeats],
    }


def _mean(values: Sequence[float]) -> float:
    """The mean; of whole numbers a whole number where it is one."""
    total = sum(values)
    return total // len(values) if total % len(values) == 0 else total / len(values)


def _phases(repeats: Sequence[Run], *, down: bool) -> dict[str, float]:
    """Seconds by phase of the reshapes in one direction, mean over all of them."""
    found = [one for run in repeats for one in reshapes(run) if one.down is down]
    return {
        phase: sum(_seconds(one, fields) for one in found) / max(1, len(found))
        for phase, fields in PHASES.items()
    }


def _seconds(reshape: Reshape, fields: tuple[str, ...]) -> float:
    return sum(getattr(reshape, field) or 0.0 for field in fields)


def _run(run: Run) -> dict[str, Any]:
    return {
        **metrics(run),
        "checks": promises(run),
        "reshapes": [asdict(reshape) for reshape in reshapes(run)],
        "starts": [asdict(start) for start in starts(run)],
        "jobs": [_job(run, job) for job in run.jobs],
    }


def _job(run: Run, job: JobView) -> dict[str, Any]:
    """One job with its history; times in seconds since the first submission."""
    begin_s = begin_of(run)
    return {
        "name": job.name,
        "state": job.state,
        "steps": job.step,
        "total_steps": job.total_steps,
        "submitted_s": job.submitted_at_s - begin_s,
        "wait_s": (job.started_at_s or begin_s) - job.submitted_at_s,
        "jct_s": (job.finished_at_s or begin_s) - job.submitted_at_s,
        "steps_lost": job.steps_lost,
        "trajectory": job.trajectory,
        "events": [
            {"at_s": event.at_s - begin_s, "kind": event.kind, "text": event.text}
            for event in run.of(job)
        ],
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    return value
