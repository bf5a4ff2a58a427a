"""What the engine wants done, as values of the log. The shells carry them out after the append.

Each is idempotent and carries (epoch, job, attempt, generation) as far as it needs, so that a
repeat after a restart does no harm and a late one is refused by whoever receives it.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_controller.core.model import GpuId, HostId, JobId
from reshape_sidecar.wire import Desired


@dataclass(frozen=True, slots=True)
class Launch:
    """Start the attempt's container on the host, without GPUs (early initialisation)."""

    epoch: int
    job: JobId
    attempt: int
    host: HostId


@dataclass(frozen=True, slots=True)
class SetDesired:
    """Tell the attempt's SideCar what to be."""

    desired: Desired


@dataclass(frozen=True, slots=True)
class CheckRelease:
    """Look whether the GPUs are free of the attempt's processes up to the generation."""

    epoch: int
    job: JobId
    attempt: int
    generation: int
    gpus: tuple[GpuId, ...]


@dataclass(frozen=True, slots=True)
class Remove:
    """End the attempt's container with every process in it."""

    epoch: int
    job: JobId
    attempt: int
    grace_s: float


Command = Launch | SetDesired | CheckRelease | Remove
