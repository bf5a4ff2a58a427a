"""A profile for people: its values as text, and speed against the number of GPUs.

It makes the output of ``reshape profile show`` and ``reshape profile plot`` (the paper's Figure 2).
Every value has its source beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from reshape_profiles.chart import bars, line_chart
from reshape_profiles.schema import ASSUMED, Profile, SpeedPoint


def show(profile: Profile) -> str:
    """Return all values of a profile with their sources."""
    lines = [f"{profile.job_type}  {profile.text}".rstrip()]
    if profile.global_batch is not None:
        lines.append(f"  global batch {profile.global_batch}")
    if profile.steps_per_epoch is not None:
        lines.append(f"  {profile.steps_per_epoch} steps per epoch")
    for gpu_type in gpu_types(profile):
        points = _of(profile, gpu_type)
        lines.append(f"  {gpu_type}: seconds per step, speed-up")
        for point in points:
            speedup = points[0].seconds_per_step / point.seconds_per_step
            lines.append(
                f"    {_gpus(point)}  {point.seconds_per_step:8.4f} s  {speedup:5.2f}"
                f"  {point.source}"
            )
    for entry in profile.accuracy:
        steps = "1 step" if entry.step == 1 else f"{entry.step} steps"
        lines.append(f"  accuracy {entry.accuracy:.3f} after {steps}  {entry.source}")
    cost = profile.overhead
    if cost is not None:
        lines.append(f"  overhead  {cost.source}")
        lines.append(
            f"    job start {cost.job_init_s:g} s, process start {cost.process_init_s:g} s"
        )
        lines.append(
            f"    checkpoint {cost.checkpoint_s:g} s, process stop {cost.process_stop_s:g} s, "
            f"job stop {cost.job_stop_s:g} s"
        )
    return "\n".join(lines)


def plot_text(profile: Profile) -> str:
    """Return speed against the number of GPUs as bars of steps per second, in one scale."""
    rows = [
        (
            f"{gpu_type}  {_gpus(point)}",
            1.0 / point.seconds_per_step,
            f"{1.0 / point.seconds_per_step:6.2f}  {_short(point)}",
        )
        for gpu_type in gpu_types(profile)
        for point in _of(profile, gpu_type)
    ]
    return f"{profile.job_type}: steps per second\n{bars(rows)}"


def plot_svg(profiles: Sequence[Profile], gpu_type: str) -> str:
    """Return speeds of job types on a GPU type against the number of GPUs, as SVG text."""
    series = {
        profile.job_type: [
            (p.gpus, 1.0 / p.seconds_per_step) for p in _of(profile, gpu_type) if p.hosts == 1
        ]
        for profile in profiles
        if _of(profile, gpu_type)
    }
    assumed = any(
        point.source.startswith(ASSUMED) for profile in profiles for point in _of(profile, gpu_type)
    )
    return line_chart(
        series,
        title=f"Training speed on {gpu_type}",
        x_label="GPUs",
        y_label="steps per second",
        note="partly assumed figures, see the profiles" if assumed else "",
    )


def gpu_types(profile: Profile) -> list[str]:
    """Return the GPU types with speeds in the profile, in alphabetical order."""
    return sorted({point.gpu_type for point in profile.speed})


def _of(profile: Profile, gpu_type: str) -> list[SpeedPoint]:
    points = [point for point in profile.speed if point.gpu_type == gpu_type]
    return sorted(points, key=lambda point: (point.hosts, point.gpus))


def _gpus(point: SpeedPoint) -> str:
    text = f"{point.gpus:>3} {'GPU ' if point.gpus == 1 else 'GPUs'}"
    return text if point.hosts == 1 else f"{text} on {point.hosts} hosts"


def _short(point: SpeedPoint) -> str:
    return ASSUMED if point.source.startswith(ASSUMED) else point.source
