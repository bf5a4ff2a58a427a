"""The operator's settings for every pod of this controller. Values only, without credentials."""

from __future__ import annotations

from dataclasses import dataclass

USER_ID = 10001
"""Default user and group of pods; never root."""
CPUS = 4.0
MEMORY_BYTES = 8 << 30
SCRATCH_BYTES = 10 << 30
"""Default limits of CPU, memory and of data on the node's disk."""
FINISHED_TTL_S = 600
"""Time that a finished Job stays as the sentinel of its end. Then: Kubernetes removes it."""


NODE_LEASE_NAMESPACE = "kube-public"
"""A namespace that every cluster has, for what all may see."""


@dataclass(frozen=True, slots=True)
class ClaimMount:
    """A volume claim, or a folder of it, at a path in the pod."""

    claim: str
    path: str
    sub_path: str = ""
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class OpenClaim:
    """A volume claim, or a folder of it, that records may name."""

    claim: str
    folder: str = ""
    """``{user}`` in it stands for the job's user."""
    read_only: bool = True
    """True: for code and datasets, which are mounted read-only then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSettings:
    """Settings that all pods of a controller share."""

    namespace: str
    controller: str
    """Label value that marks this controller's objects in the namespace."""
    image: str | None = None
    """Image of records that name none."""
    registry: str | None = None
    """Registry for images that are built from a record's code; None: none is built."""
    storage_claim: str | None = None
    """Claim for ``JOB/checkpoints`` of jobs that name none, and ``JOB/attempt-N/logs`` of all."""
    storage_folder: str | None = None
    """Folder of this machine with the files of ``storage_claim``, to read logs; None: none."""
    controller_claim: str | None = None
    """Claim with the controller's own home, which no pod of a job may mount; None: not known."""
    claims: tuple[OpenClaim, ...] | None = None
    """Claims that records may name; None: none is listed, so ``storage_claim`` alone, outside of
    the folders of jobs."""
    images: tuple[str, ...] = ()
    """Beginnings of the images that records may name; empty: any."""
    mounts: tuple[ClaimMount, ...] = ()
    user_id: int = USER_ID
    cpus: float = CPUS
    memory_bytes: int = MEMORY_BYTES
    scratch_bytes: int = SCRATCH_BYTES
    finished_ttl_s: int = FINISHED_TTL_S
    runtime_class: str | None = None
    """Runtime class that shows a node's GPUs to its pods; None: the node's own runtime does."""
    tolerated_taints: tuple[str, ...] = ()
    """Keys of taints that the GPU nodes have against other pods."""
    node_labels: tuple[tuple[str, str], ...] = ()
    """Labels of the nodes that this controller uses; empty: all nodes."""

    labels: tuple[tuple[str, str], ...] = ()
    """Further labels of every object."""
    annotations: tuple[tuple[str, str], ...] = ()
    """Further annotations of every Job and pod."""
    priority_class: str | None = None
    """Priority class of every pod; None: the cluster's default."""
    image_pull_secrets: tuple[str, ...] = ()
    """Secrets of the namespace with credentials of registries."""

    node_lease_namespace: str = NODE_LEASE_NAMESPACE
    """Namespace of the Leases of nodes, the same for all controllers of the cluster."""

    @property
    def node_selector(self) -> str:
        """Return the labels as the API server takes them."""
        return ",".join(f"{key}={value}" for key, value in self.node_labels)
