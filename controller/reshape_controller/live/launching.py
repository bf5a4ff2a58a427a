"""From a job record to the ``LaunchSpec`` that a launcher gets.

Does: fills in the daemon's defaults (folders, address, devices).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reshape_controller.core.model import (
    GpuId,
    HostId,
    Job,
    JobSpec,
    LengthUnit,
    OnDifference,
    ProofUse,
)
from reshape_launcher.spec import DeviceMode, LaunchSpec
from reshape_sidecar.contract import ENV_MICRO_BATCHES, ENV_PROOF, ENV_SAVE_DEADLINE_S, ENV_SIZES
from reshape_sidecar.wire import Processes, Shortcut


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """Settings that every launch of this daemon shares."""

    coordinator_url: str
    work_folder: Path
    """Parent of ``JOB/work`` and ``JOB/checkpoints``, for jobs that name no folders."""
    device_mode: DeviceMode = DeviceMode.POOL
    device_truth: Path | None = None
    standby: Shortcut = Shortcut.AUTO
    """OFF: no job of this daemon has a zygote, whatever its record says."""
    controller_key: str | None = None
    """SHA-256 of the public key that SideCars take at ``coordinator_url``; None: as before keys
    were pinned, which is for loopback, and for a proxy with TLS."""
    overlap: Shortcut = Shortcut.AUTO
    """OFF: no job of this daemon has a successor, whatever its record says."""


def launch_spec(
    settings: LaunchSettings,
    job: Job,
    host: HostId,
    gpus: tuple[GpuId, ...],
    epoch: int,
    save_s: float,
) -> LaunchSpec:
    """Describe the launch of ``job``'s newest attempt. Makes no folder.

    ``gpus``: the GPUs that ``host`` shows. ``save_s``: time to save when the container is ended.
    """
    spec, folder = job.spec, settings.work_folder / job.id
    length = spec.length
    value = int(length.value) if length is not None else None
    unit = length.unit if length is not None else None
    has_target = length is not None and unit is LengthUnit.TARGET_ACCURACY
    return LaunchSpec(
        job=job.id,
        attempt=job.attempt,
        name=spec.name,
        host=host,
        command=spec.command,
        code=spec.code or str(folder / "work"),
        checkpoints=spec.checkpoints or str(folder / "checkpoints"),
        coordinator_url=settings.coordinator_url,
        controller_key=settings.controller_key,
        epoch=epoch,
        device_mode=settings.device_mode,
        host_devices=gpus,
        env=spec.env + _batch(spec) + _proof(spec, save_s),
        dataset=spec.dataset,
        framework=spec.framework.value,
        length_epochs=value if unit is LengthUnit.EPOCHS else None,
        length_steps=value if unit is LengthUnit.STEPS else None,
        target_accuracy=length.value if length is not None and has_target else None,
        metric=spec.metric,
        epochs_in_a_row=spec.epochs_in_a_row,
        global_batch=spec.global_batch,
        seed=spec.seed,
        device_truth=str(settings.device_truth) if settings.device_truth is not None else None,
        job_type=spec.job_type,
        image=spec.image,
        cpus=spec.cpus,
        memory_bytes=spec.memory_bytes,
        shared_memory_bytes=spec.shared_memory_bytes,
        save_s=save_s,
        workers=spec.workers,
        standby=_both(settings.standby, spec.standby),
        overlap=_both(settings.overlap, spec.overlap),
        uid=spec.uid,
        user=spec.user,
        processes=spec.processes,
    )


def _batch(spec: JobSpec) -> tuple[tuple[str, str], ...]:
    """Return the variables by which the hook of a PyTorch job divides a step among GPU counts."""
    if spec.processes is not Processes.PER_GPU:
        return ()
    count = spec.micro_batches
    micro = () if count is None else ((ENV_MICRO_BATCHES, str(count)),)
    return ((ENV_SIZES, ",".join(map(str, spec.optional_gpus))), *micro)


def _proof(spec: JobSpec, save_s: float) -> tuple[tuple[str, str], ...]:
    """Return the variables by which a training process proves its restart, or does not."""
    deadline = ((ENV_SAVE_DEADLINE_S, f"{save_s:g}"),) if save_s > 0 else ()
    if spec.proof is ProofUse.OFF:
        return ((ENV_PROOF, ProofUse.OFF.value), *deadline)
    if spec.on_difference is OnDifference.STOP:
        return ((ENV_PROOF, OnDifference.STOP.value), *deadline)
    return deadline


def _both(daemon: Shortcut, record: Shortcut) -> Shortcut:
    """Return AUTO only if the daemon and the job's record allow it."""
    return Shortcut.OFF if Shortcut.OFF in (daemon, record) else Shortcut.AUTO
