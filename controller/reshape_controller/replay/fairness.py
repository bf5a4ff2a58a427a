"""How evenly a policy treats jobs: slowdowns, the worst fairness ratio, waits, reshapes.

Does: compares each job's completion time with its time in an empty cluster, by the true speeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from reshape_controller.core.model import JobSpec
from reshape_controller.replay.bounds import gpu_types, job_bounds
from reshape_controller.replay.metrics import JobResult
from reshape_controller.replay.shell import Scene


def fairness(scene: Scene, rows: Sequence[JobResult]) -> dict[str, float]:
    """Return the metrics of fairness, by name. ``rows``: all jobs of the scene's workload."""
    bounds = zip(scene.workload.jobs, job_bounds(scene), strict=True)
    best_s = {job.spec.name: bound.alone_s for job, bound in bounds}
    mean_s = {job.spec.name: _mean_s(scene, job.spec) for job in scene.workload.jobs}
    slowdowns = [row.jct_s / best_s[row.job] for row in rows]
    return {
        "mean_slowdown": fmean(slowdowns),
        "worst_slowdown": max(slowdowns),
        "worst_fairness": max(row.jct_s / mean_s[row.job] for row in rows),
        "longest_wait_s": max(row.wait_s for row in rows),
        "reshapes_per_job": fmean(row.reshape_ups + row.reshape_downs + row.moves for row in rows),
    }


def _mean_s(scene: Scene, spec: JobSpec) -> float:
    """A job's time in an empty cluster at its smallest size, at the mean speed of all GPUs."""
    truth, cost, least, types = (
        scene.truth.of(spec),
        scene.costs.overhead,
        min(spec.optional_gpus),
        gpu_types(scene),
    )
    speed = sum(count / truth.step_s(kind, least) for kind, count in types)
    train_s = truth.total_steps * sum(count for _, count in types) / speed
    stops_s = cost.checkpoint_s + cost.process_stop_s
    return cost.job_init_s + cost.process_init_s + train_s + stops_s
