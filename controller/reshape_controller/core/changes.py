"""What an engine changed since somebody last asked.

Does: names jobs, GPUs, hosts and job types. Never: has their values; those are in the state. State:
of one ``State``, which hands it out and begins another.
"""

from __future__ import annotations

from collections.abc import Mapping

from reshape_controller.core.model import GpuId, HostId, JobId


class ChangeSet:
    """Ids changed since they were last taken, in the order of first change."""

    __slots__ = ("gpus", "hosts", "job_types", "jobs")

    def __init__(self) -> None:
        self.jobs: dict[JobId, None] = {}
        self.gpus: dict[GpuId, None] = {}
        self.hosts: dict[HostId, None] = {}
        self.job_types: dict[str, None] = {}
        """Types of which something else is known than before."""

    def see_types(self, before: Mapping[str, object], after: Mapping[str, object]) -> None:
        """What is known of job types, before and after: those with another value changed."""
        for kind in {**before, **after}:
            if before.get(kind) is not after.get(kind):
                self.job_types[kind] = None
