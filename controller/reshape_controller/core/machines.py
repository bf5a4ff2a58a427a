"""GPUs and hosts, as frozen values, and the ids of all that the engine knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

from reshape_controller.core.states import GpuState

JobId = NewType("JobId", str)
GpuId = NewType("GpuId", str)
HostId = NewType("HostId", str)


@dataclass(frozen=True)
class Gpu:
    """One GPU. It has one ``owner`` field, so that it cannot have two owners."""

    id: GpuId
    host: HostId
    index: int
    state: GpuState = GpuState.IDLE
    owner: JobId | None = None
    promised_to: JobId | None = None
    """The newcomer that gets it next. Until then no plan may give it to another job (R1)."""
    attempt: int = 0
    """While releasing: the attempt whose processes must be gone."""
    generation: int = 0
    """While releasing: the newest generation of the processes that must be gone."""
    verify_by_s: float | None = None
    reason: str = ""
    unseen: str = ""
    """Reason to keep it out of use: its host does not show it. Empty while it does."""


@dataclass(frozen=True, slots=True)
class Host:
    """A machine with GPUs of one type."""

    id: HostId
    gpu_type: str
    gpus: tuple[GpuId, ...]
    drained: bool = False
    present: bool = True
    """False while it is silent or gone."""
    drained_by: str = ""
    """Source of the last drain; an automatic undrain needs the same source. Empty: not drained."""
    closed: str = ""
    """Why no job is placed there now, though its jobs stay; empty if it is open."""

    @property
    def no_option(self) -> str:
        """Why no plan may place a job there; empty if it may."""
        if not self.present:
            return f"{self.id} is silent"
        if self.drained:
            return f"{self.id} is drained"
        return f"{self.id} takes no new job: {self.closed}" if self.closed else ""
