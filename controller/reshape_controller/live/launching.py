"""From a job record to what a launcher is asked to launch.

Does: fills in the daemon's own defaults (folders, address, devices). Never: launches.
State: none beyond its settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reshape_controller.core.model import GpuId, HostId, Job, LengthUnit
from reshape_launcher.spec import DeviceMode, LaunchSpec


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """What every launch of this daemon has in common."""

    coordinator_url: str
    work_folder: Path
    """Holds ``JOB/work`` and ``JOB/checkpoints`` of jobs that name no folders of their own."""
    device_mode: DeviceMode = DeviceMode.POOL
    device_truth: Path | None = None


def launch_spec(
    settings: LaunchSettings,
    job: Job,
    host: HostId,
    gpus: tuple[GpuId, ...],
    epoch: int,
    save_s: float,
) -> LaunchSpec:
    """The launch of ``job``'s newest attempt on ``host``, which shows ``gpus``. It may take
    ``save_s`` to save when it is ended. Makes no folder."""
    spec, own = job.spec, settings.work_folder / job.id
    length = spec.length
    value = int(length.value) if length is not None else None
    unit = length.unit if length is not None else None
    return LaunchSpec(
        job=job.id,
        attempt=job.attempt,
        name=spec.name,
        host=host,
        command=spec.command,
        code=spec.code or str(own / "work"),
        checkpoints=spec.checkpoints or str(own / "checkpoints"),
        coordinator_url=settings.coordinator_url,
        epoch=epoch,
        device_mode=settings.device_mode,
        host_devices=gpus,
        env=spec.env,
        dataset=spec.dataset,
        framework=spec.framework.value,
        length_epochs=value if unit is LengthUnit.EPOCHS else None,
        length_steps=value if unit is LengthUnit.STEPS else None,
        global_batch=spec.global_batch,
        seed=spec.seed,
        device_truth=str(settings.device_truth) if settings.device_truth is not None else None,
        job_type=spec.job_type,
        image=spec.image,
        cpus=spec.cpus,
        memory_bytes=spec.memory_bytes,
        save_s=save_s,
        workers=spec.workers,
    )
