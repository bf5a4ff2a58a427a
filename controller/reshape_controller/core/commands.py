"""The commands of the engine, as values of the log. The loop carries them out after the append.

Each is idempotent and carries those of epoch, job, attempt and generation that it needs. So a
repeat after a restart does no harm, and the receiver refuses a late command.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_controller.core.fast_replace import fast_init
from reshape_controller.core.model import GpuId, HostId, JobId, Share
from reshape_sidecar.wire import Desired


@fast_init
@dataclass(frozen=True, slots=True)
class Launch:
    """Start the attempt's container on the host, without GPUs (early initialisation)."""

    epoch: int
    job: JobId
    attempt: int
    host: HostId
    shares: tuple[Share, ...] = ()
    """The workers by host, if they are on several, each with a container. Empty: all are on
    ``host``."""


@fast_init
@dataclass(frozen=True, slots=True)
class SetDesired:
    """Send the attempt's SideCar its desired state."""

    desired: Desired


@fast_init
@dataclass(frozen=True, slots=True)
class CheckRelease:
    """Check that no process of the attempt up to the generation is left on the GPUs, which are on
    one host."""

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
