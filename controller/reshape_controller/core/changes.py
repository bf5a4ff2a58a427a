"""The ids of everything in the state that changed since the changes were last drained.

Does: names jobs, GPUs, hosts and job types; their values are in the state.
"""

from __future__ import annotations

from collections.abc import Mapping

from reshape_controller.core.model import GpuId, HostId, JobId


class ChangeSet:
    """Ids of what changed, in the order of first change."""

    __slots__ = ("gpus", "hosts", "job_types", "jobs", "regrouped")

    def __init__(self) -> None:
        self.jobs: dict[JobId, None] = {}
        self.gpus: dict[GpuId, None] = {}
        self.hosts: dict[HostId, None] = {}
        self.regrouped: dict[JobId, None] = {}
        """Jobs of several workers with other GPUs than before: one that stays may have another
        worker."""
        self.job_types: dict[str, None] = {}
        """Job types with another profile or other learned values than before."""

    def add_types(self, before: Mapping[str, object], after: Mapping[str, object]) -> None:
        """Add each job type whose value after the change is not the value before it."""
        for kind in {**before, **after}:
            if before.get(kind) is not after.get(kind):
                self.job_types[kind] = None
