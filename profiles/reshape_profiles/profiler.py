"""Measurement of a script on one and more devices, as a profile.

Does: run it for a few iterations on each number of devices (the paper: profiling is inexpensive),
and average the times of starts, saves and stops. Start and end of a container cannot be measured
here: they come from given costs, and their source says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from reshape_profiles.schema import Overhead, Profile, SpeedPoint
from reshape_profiles.training_run import RunFailed, RunFigures, Script, run

Say = Callable[[str], None]


def profile(
    script: Script,
    gpu_type: str,
    devices: Sequence[str],
    sizes: Sequence[int],
    costs: Overhead,
    say: Say = lambda text: None,
) -> Profile:
    """Measure ``script`` on the first ``size`` of ``devices`` for each size. Raises RunFailed.

    ``costs`` has the start and end of a container; ``say`` is called with a text at each run's end.
    """
    wrong = [size for size in sizes if not 1 <= size <= len(devices)]
    if wrong or not sizes:
        raise RunFailed(
            f"cannot run on sizes {wrong or '(none given)'}; {len(devices)} devices are available",
            f"give numbers from 1 to {len(devices)}",
        )
    batch = script.global_batch
    uneven = [size for size in sizes if batch is not None and batch % size]
    if uneven:
        what = f"a global batch of {batch} cannot be split over {uneven} devices"
        raise RunFailed(what, f"use a multiple of {math.lcm(*sizes)}")
    found: list[tuple[int, RunFigures]] = []
    for size in sorted(set(sizes)):
        figures = run(script, devices[:size])
        found.append((size, figures))
        say(f"{size} {gpu_type}: {figures.seconds_per_step:.4f} s per iteration")
    kind = "simulated devices" if script.simulated else "GPUs"
    if script.simulated and script.device_truth is not None:
        kind += ", paced"
    source = f"measured: {{steps}} iterations on {kind}"
    return Profile(
        job_type=script.job_type,
        text=" ".join(script.command),
        global_batch=batch,
        steps_per_epoch=found[0][1].steps_per_epoch,
        speed=tuple(
            SpeedPoint(gpu_type, size, figures.seconds_per_step, source.format(steps=figures.steps))
            for size, figures in found
        ),
        overhead=_overhead([figures for _, figures in found], costs),
    )


def _overhead(found: Sequence[RunFigures], costs: Overhead) -> Overhead:
    """Return the measured overheads, and the rest from ``costs``."""
    measured = {
        "process start": [run.process_init_s for run in found if run.process_init_s is not None],
        "checkpoint": [run.checkpoint_s for run in found if run.checkpoint_s is not None],
        "process stop": [run.process_stop_s for run in found if run.process_stop_s is not None],
    }
    names = ", ".join(name for name, seconds in measured.items() if seconds)
    source = f"measured: {names}; the rest {costs.source}" if names else costs.source
    return Overhead(
        job_init_s=costs.job_init_s,
        process_init_s=_mean(measured["process start"], costs.process_init_s),
        checkpoint_s=_mean(measured["checkpoint"], costs.checkpoint_s),
        process_stop_s=_mean(measured["process stop"], costs.process_stop_s),
        job_stop_s=costs.job_stop_s,
        source=source,
    )


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
