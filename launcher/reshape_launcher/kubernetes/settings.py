"""What an operator decides about every pod of this controller. Values only.

Never: holds anything that a job record says, or a credential. State: none.
"""

from __future__ import annotations

from dataclasses import dataclass

USER_ID = 10001
"""Pods run as this user and group unless the operator says otherwise; never as root."""
CPUS = 4.0
MEMORY_BYTES = 8 << 30
SCRATCH_BYTES = 10 << 30
"""Limits of a job whose record names none, and of what it may write to the node's disk."""
FINISHED_TTL_S = 600
"""A finished Job is kept so long, as the sentinel of its end. Then: Kubernetes removes it."""


@dataclass(frozen=True, slots=True)
class ClaimMount:
    """A volume claim that every pod gets at a place of its own: data sets, software."""

    claim: str
    path: str
    sub_path: str = ""
    read_only: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSettings:
    """What all pods of a controller have in common."""

    namespace: str
    controller: str
    """Tells this controller's objects from another's in the same namespace; a label value."""
    image: str | None = None
    """For records that bring none."""
    registry: str | None = None
    """Where images are pushed that are built from a record's code; None: none is built."""
    storage_claim: str | None = None
    """Holds ``JOB/checkpoints`` of jobs that name none, and ``JOB/attempt-N/logs`` of all."""
    storage_folder: str | None = None
    """Where this machine has that claim's files, so that it can read the logs; None: nowhere."""
    mounts: tuple[ClaimMount, ...] = ()
    user_id: int = USER_ID
    cpus: float = CPUS
    memory_bytes: int = MEMORY_BYTES
    scratch_bytes: int = SCRATCH_BYTES
    finished_ttl_s: int = FINISHED_TTL_S
    runtime_class: str | None = None
    """Makes the GPUs of a node visible in its pods; None: the node's own runtime does."""
    tolerated_taints: tuple[str, ...] = ()
    """Keys of taints that keep other pods off the GPU nodes."""
    node_labels: tuple[tuple[str, str], ...] = ()
    """Nodes with all of these are this controller's; none: all nodes are."""

    @property
    def node_selector(self) -> str:
        """The labels as the API server takes them."""
        return ",".join(f"{key}={value}" for key, value in self.node_labels)
