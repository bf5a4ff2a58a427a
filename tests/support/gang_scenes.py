"""Replays of jobs over several hosts, with round figures: n GPUs train n times as fast as one."""

from __future__ import annotations

from typing import Any

from reshape_controller.core.model import JobSpec, Length, LengthUnit, Spans
from reshape_controller.replay.ground_truth import truth_of
from reshape_controller.replay.inputs import Costs, WorkJob, Workload, cluster_of
from reshape_controller.replay.shell import Scene
from reshape_profiles.schema import Overhead, Profile, SpeedPoint

STEP_S = 8.0
"""Seconds of a step on one GPU."""
COSTS = Overhead(10.0, 20.0, 2.0, 3.0, 5.0)


def gang_job(name: str, *sizes: int, steps: int, workers: int = 2, **more: Any) -> JobSpec:
    """Return a record of a job whose two workers may be on several hosts if needed."""
    length = Length(LengthUnit.STEPS, float(steps))
    fields = {"span": Spans.IF_NEEDED, **more}
    return JobSpec(name, ("train",), sizes, length, job_type="gang", workers=workers, **fields)


def gang_scene(
    *jobs: tuple[float, JobSpec], cluster: str = "2*4xV100", host_s: float = 0.0
) -> Scene:
    """Return a workload of jobs, each with the time at which it is submitted. On two hosts a step
    takes ``host_s`` longer."""
    types = sorted({host.gpu_type for host in cluster_of(cluster).hosts})
    points = tuple(SpeedPoint(kind, n, STEP_S / n) for kind in types for n in range(1, 25))
    if host_s:
        points += tuple(
            SpeedPoint(p.gpu_type, p.gpus, p.seconds_per_step + host_s, hosts=2)
            for p in points
            if p.gpus > 1
        )
    known = (Profile("gang", speed=points, overhead=COSTS),)
    made = tuple([WorkJob(at_s, spec) for at_s, spec in jobs])
    costs = Costs("gangs", COSTS)
    return Scene(
        Workload("gangs", made), cluster_of(cluster), costs, known, truth_of(known, spread=0.0)
    )
