"""Values for a cluster's objects, and the protocol of the calls to an API server.

Only ``Manifest`` is an untyped document; it does not leave this package.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

Manifest = dict[str, Any]
"""An object as the API takes it; ``manifests`` builds it."""

NOT_FOUND, CONFLICT, UNPROCESSABLE = 404, 409, 422
"""Values of ``KubernetesError.status``: no such object; this name or a newer version exists; the
object is not accepted."""
ALREADY_EXISTS = "AlreadyExists"
"""Value of ``KubernetesError.reason``. Another conflict, for example when two calls are counted for
one quota at once, has created nothing and is worth a retry."""


class KubernetesError(OSError):
    """The API server refused a call or was not reached.

    ``status`` is the HTTP status, 0 if the server was not reached; ``reason`` is the API's own
    word; ``retry_after_s`` is the time for which the server wants no repeat of the call.
    """

    def __init__(
        self, what: str, status: int, message: str, reason: str = "", retry_after_s: float = 0.0
    ) -> None:
        super().__init__(f"{what}: {message}")
        self.what, self.message = what, message
        self.status = status
        self.reason = reason
        self.retry_after_s = retry_after_s

    def copy(self) -> KubernetesError:
        """Return the same error, to be raised in another place."""
        values = (self.what, self.status, self.message, self.reason, self.retry_after_s)
        return KubernetesError(*values)

    @property
    def lasting(self) -> bool:
        """True if the server refused the object itself, so that a retry fails too."""
        return self.status in (400, 413, UNPROCESSABLE)

    @property
    def away(self) -> bool:
        """True if the API server did not answer or cannot serve the call now."""
        return self.status in (0, CONFLICT, 429) or self.status >= 500


class NotRunning(KubernetesError):
    """The pod's container does not run: it never started, or it has ended."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node, by which it refuses pods that do not tolerate it."""

    key: str
    value: str
    effect: str

    @property
    def text(self) -> str:
        """Return the taint as ``kubectl`` writes it."""
        return (
            f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"
        )


@dataclass(frozen=True, slots=True)
class Node:
    """A node. ``boot_id`` changes when its machine restarts."""

    name: str
    ready: bool
    schedulable: bool
    boot_id: str
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimInfo:
    """A volume claim: its access modes, and the node that its volume was made for, if any."""

    modes: tuple[str, ...]
    node: str = ""


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A Job of this controller. ``over`` is why it finished; None while it has not."""

    name: str
    job: str
    attempt: int
    suspended: bool = False
    released: bool = False
    """True if its launch is complete."""
    queue: str = ""
    """The queue, or the controller, that admits it; empty if it starts without admission."""
    over: str | None = None
    in_order: bool = False
    """True if its pods ended in order or were taken away, even if they are deleted."""
    reason: str = ""
    """Why the controller itself ended the attempt; empty if it did not."""
    lasting: bool = False
    """True if the controller noted that another attempt would end in the same way."""
    started_at_s: float = math.inf
    """When Kubernetes began to create its pods, since the newest resume; infinite: it has not."""
    has_ended_pod: bool = False
    """True if a pod of the Job has ended in any way, even if that pod is deleted."""
    pods: int = 1
    """Intended number of pods: one for each worker."""
    host: str = ""
    """The node that it is for if it is a part of a gang; else empty."""


@dataclass(frozen=True, slots=True)
class CreatedJob:
    """A Job that a launch created or found."""

    uid: str
    released: bool = False
    """True if an earlier launch was complete: a suspension since then is another controller's."""
    queue: str = ""
    """The queue, or the controller, that admits it; empty if it starts without admission."""


@dataclass(frozen=True, slots=True)
class PodInfo:
    """A pod of a Job. ``phase`` is the one of Kubernetes."""

    name: str
    of: str
    """Name of its Job."""
    node: str = ""
    phase: str = "Pending"
    started: bool = False
    """True if its container runs or ran."""
    deletion_grace_s: int | None = None
    """Grace period of its deletion; None if the pod was not deleted."""
    exit_code: int | None = None
    reason: str = ""
    trouble: str = ""
    """Why it does not start, in the words of the node or the scheduler."""
    lasting: bool = False
    """True if neither waiting nor another pod of the same job helps."""
    trouble_s: float = 0.0
    """How long this launcher has observed the trouble (``pod_status.TroubleTimer``)."""
    created_at_s: float = 0.0
    gated: bool = False
    """True if another controller keeps the scheduler from it; it has never run."""
    message: str = ""
    """The termination message of its container."""
    claims: tuple[str, ...] = ()
    """Volume claims that it mounts."""
    host: str = ""
    """The node that it is for if it is a part of a gang; else empty."""

    @property
    def over(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class NodeLease:
    """The Lease of a node. ``version`` is empty if it does not exist yet."""

    node: str
    holder: str = ""
    """Id of the store whose controller gives the node's GPUs to jobs; empty: none has it."""
    who: str = ""
    """That controller, in words."""
    version: str = ""


class LeaseApi(Protocol):
    """The calls about Leases of nodes. Each raises KubernetesError."""

    def node_leases(self) -> tuple[NodeLease, ...]:
        """Return the Leases of all nodes."""

    def write_node_lease(self, lease: NodeLease) -> NodeLease | None:
        """Replace exactly the version that was read, or create the Lease; None if it changed."""


class ClusterApi(LeaseApi, Protocol):
    """The calls that the launcher needs. Each raises KubernetesError."""

    def close(self) -> None:
        """Close the connections."""

    def problem(self) -> str:
        """Return which call fails now, and why; empty if none fails. Makes no call."""

    def version(self) -> str:
        """Return the version of the API server."""

    def create_job(self, manifest: Manifest) -> CreatedJob:
        """Create the Job, or find it by its name."""

    def create_secret(self, manifest: Manifest) -> None:
        """Create the object, unless one of this name exists."""

    def create_service(self, manifest: Manifest) -> None:
        """Create the object, unless one of this name exists."""

    def create_config_map(self, manifest: Manifest) -> None:
        """Create the object, unless one of this name exists."""

    def patch_job(self, name: str, changes: Manifest) -> bool:
        """Merge the changes; False if there is no such Job."""

    def delete_job(self, name: str) -> None:
        """Delete the Job and what it owns; no error if it does not exist."""

    def delete_pod(self, name: str, grace_s: int) -> None:
        """Delete the pod with this grace period; no error if it does not exist."""

    def jobs(self, selector: str) -> tuple[JobInfo, ...]:
        """Return all Jobs with these labels."""

    def pods(self, selector: str) -> tuple[PodInfo, ...]:
        """Return all pods with these labels."""

    def newest_warning(self, kind: str, name: str) -> str:
        """Return the text of the newest event of an object if it is a warning; empty if not."""

    def nodes(self, selector: str) -> tuple[Node, ...]:
        """Return all nodes of the cluster with these labels."""

    def claim(self, name: str) -> ClaimInfo | None:
        """Return a volume claim; None if none of this name exists."""

    def run_in(self, pod: str, command: tuple[str, ...]) -> str:
        """Run a command in the pod's container; return its standard output. Raises NotRunning."""
