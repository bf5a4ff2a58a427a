"""A scene at a multiple of its speed, for a live run on a real controller.

Does: divide times by the factor, and merge steps of a job so that each is long enough to be paced.
Profiles and true speeds change alike. Costs do not change: starts, saves and stops are real in a
live run, and weigh more with a higher factor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from reshape_controller.core.model import JobSpec, Length, LengthUnit, Placement, Spans
from reshape_controller.replay.inputs import HostSpec, ReplayError, WorkJob, Workload
from reshape_controller.replay.shell import Scene
from reshape_profiles.schema import Profile
from reshape_sidecar.device_truth import DeviceTruth

STEP_S = 0.1
"""Approximate duration of the fastest step of the paced program. A busy machine wakes a process
some milliseconds late, and a step that ends 20 ms late counts as late."""
SPEED_UP_MAX = 10_000.0


@dataclass(frozen=True, slots=True)
class ScaledScene:
    """Inputs of both worlds: jobs in steps, profiles, and true speeds."""

    workload: Workload
    profiles: tuple[Profile, ...]
    device: DeviceTruth


def scale_scene(scene: Scene, speed_up: float, step_s: float = STEP_S) -> ScaledScene:
    """Return the scene ``speed_up`` times as fast, its fastest steps about ``step_s`` long.

    Raises ReplayError.
    """
    if not 1.0 <= speed_up <= SPEED_UP_MAX:
        raise ReplayError(f"a speed-up of {speed_up:g}; give one from 1 to {SPEED_UP_MAX:g}")
    if len(scene.cluster.hosts) != 1:
        raise ReplayError(
            f"cluster {scene.cluster.text}: a live run uses this machine only; give one host, as "
            "in --cluster 8xV100"
        )
    host = scene.cluster.hosts[0]
    kinds = {job.spec.job_type for job in scene.workload.jobs}
    profiles = [profile for profile in scene.profiles if profile.job_type in kinds]
    together = {
        profile.job_type: _steps_per_unit(profile, host, speed_up, step_s) for profile in profiles
    }
    jobs, seconds = [], {}
    for job in scene.workload.jobs:
        count = together[job.spec.job_type or ""]
        spec, seconds[job.spec.name] = _job(scene, job.spec, host, count, speed_up)
        jobs.append(WorkJob(job.submit_s / speed_up, spec))
    return ScaledScene(
        replace(scene.workload, jobs=tuple(jobs)),
        tuple(
            _profile(profile, host, together[profile.job_type], speed_up) for profile in profiles
        ),
        DeviceTruth(seconds, {}),
    )


def _steps_per_unit(profile: Profile, host: HostSpec, speed_up: float, step_s: float) -> int:
    """Return the number of steps of the type to merge into a step."""
    known = [point.seconds_per_step for point in profile.speed if point.gpu_type == host.gpu_type]
    if not known:
        raise ReplayError(f"job type {profile.job_type}: no speeds on {host.gpu_type}")
    return max(1, round(step_s * speed_up / min(known)))


def _job(
    scene: Scene,
    spec: JobSpec,
    host: HostSpec,
    together: int,
    speed_up: float,
) -> tuple[JobSpec, dict[int, float]]:
    """Return a job in steps on one host, and its true seconds per step by number of GPUs."""
    truth = scene.truth.of(spec)
    if truth.accuracy is not None:
        raise ReplayError(
            f"job {spec.name}: has a target accuracy, which the paced program of a live run "
            "never reaches; give its length in epochs or steps"
        )
    sizes = tuple(size for size in spec.optional_gpus if size <= host.gpus)
    if not sizes:
        raise ReplayError(f"job {spec.name} fits on no host of {scene.cluster.text}")
    longest_s = None if spec.max_wait_s is None else spec.max_wait_s / speed_up
    steps = Length(LengthUnit.STEPS, float(max(1, math.ceil(truth.total_steps / together))))
    changed = replace(
        spec,
        optional_gpus=sizes,
        length=steps,
        max_wait_s=longest_s,
        workers=1,
        span=Spans.NEVER,
        placement=Placement.PACK,
    )
    factor = together / speed_up
    return changed, {size: truth.step_s(host.gpu_type, size) * factor for size in sizes}


def _profile(profile: Profile, host: HostSpec, together: int, speed_up: float) -> Profile:
    points = tuple(
        replace(point, seconds_per_step=point.seconds_per_step * together / speed_up)
        for point in profile.speed
        if point.gpu_type == host.gpu_type
    )
    return Profile(
        profile.job_type,
        f"{together} steps at a time, {speed_up:g} times as fast",
        global_batch=profile.global_batch,
        speed=points,
    )
