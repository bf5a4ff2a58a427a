"""What the launcher knows of a cluster's objects, and what it asks of an API server.

Does: names the values and the protocol. Never: a bare dict beyond this package, or a call without a
time limit. State: none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

Manifest = dict[str, Any]
"""An object as the API takes it; made by ``manifests``, read by nobody else."""

MISSING, CONFLICT = 404, 409
"""Of ``ApiTrouble.status``: there is no such object; there is one of this name, or a newer one."""
THERE = "AlreadyExists"
"""Of ``ApiTrouble.reason``. Another conflict, as of two who are counted for one quota at once, made
nothing, and asks to try again."""


class ApiTrouble(OSError):
    """The API server refused, or could not be asked. ``status`` 0: it was not reached; ``reason``
    is its one word for why."""

    def __init__(self, what: str, status: int, message: str, reason: str = "") -> None:
        super().__init__(f"{what}: {message}")
        self.status = status
        self.reason = reason

    @property
    def lasting(self) -> bool:
        """Whether the object itself was refused, and would be again."""
        return self.status in (400, 413, 422)

    @property
    def away(self) -> bool:
        """Whether the API server did not answer, or cannot now: nobody's fault but its own."""
        return self.status in (0, CONFLICT, 429) or self.status >= 500


class NotRunning(ApiTrouble):
    """The pod's node says that its container does not run: it never did, or it has ended."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node. ``boot_id`` changes when its machine is started again."""

    name: str
    ready: bool
    schedulable: bool
    boot_id: str


@dataclass(frozen=True, slots=True)
class ClaimSeen:
    """A volume claim: its access modes, and the node that its volume was made for, if any."""

    modes: tuple[str, ...]
    node: str = ""


@dataclass(frozen=True, slots=True)
class JobSeen:
    """One of our Jobs. ``over`` is why it is finished; None while it is not."""

    name: str
    job: str
    attempt: int
    suspended: bool = False
    over: str | None = None
    in_order: bool = False
    """It is over, and each of its pods ended with exit code 0."""
    reason: str = ""
    """What the controller wrote down when it ended the attempt itself."""
    lasting: bool = False
    """It also wrote down that another attempt would end in the same way."""
    bereft: bool = False
    """A pod of it has ended, well or not, whether or not it can be seen any more."""
    pods: int = 1
    """How many it shall have: one for each worker."""


@dataclass(frozen=True, slots=True)
class PodSeen:
    """One pod of a Job. ``phase`` is Kubernetes'; ``trouble`` why it does not come up."""

    name: str
    of: str
    """Name of its Job."""
    node: str = ""
    phase: str = "Pending"
    started: bool = False
    """Its container runs or ran."""
    ends_within_s: int | None = None
    """It was deleted with this grace; None: it was not."""
    exit_code: int | None = None
    reason: str = ""
    trouble: str = ""
    """Why it does not come up, as the node or the scheduler says it."""
    lasting: bool = False
    """It will not come up by waiting, nor would another pod of the same job."""
    waits_s: float = 0.0
    """How long it has had this trouble, as far as it was looked at (``waiting``)."""
    message: str = ""
    """What its container left as its last word."""
    claims: tuple[str, ...] = ()
    """Volume claims that it mounts."""

    @property
    def over(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


class Cluster(Protocol):
    """The calls that the launcher needs; each raises ApiTrouble."""

    def close(self) -> None:
        """Let go of the connections."""

    def create_job(self, manifest: Manifest) -> str:
        """Create it, or find the one of this name; gives its uid."""

    def create_secret(self, manifest: Manifest) -> None:
        """Create it, unless one of this name is there."""

    def create_service(self, manifest: Manifest) -> None:
        """Create it, unless one of this name is there."""

    def create_config_map(self, manifest: Manifest) -> None:
        """Create it, unless one of this name is there."""

    def patch_job(self, name: str, changes: Manifest) -> bool:
        """Merge the changes; False if there is no such Job."""

    def delete_job(self, name: str) -> None:
        """Delete it with what it owns; no error if it is not there."""

    def delete_pod(self, name: str, grace_s: int) -> None:
        """Ask for its end within ``grace_s``; no error if it is not there."""

    def jobs(self, selector: str) -> tuple[JobSeen, ...]:
        """All Jobs with these labels."""

    def pods(self, selector: str) -> tuple[PodSeen, ...]:
        """All pods with these labels."""

    def newest_warning(self, kind: str, name: str) -> str:
        """The newest event about an object; nothing if there is none, or it is no warning."""

    def nodes(self, selector: str) -> tuple[Node, ...]:
        """All nodes of the cluster with these labels."""

    def claim(self, name: str) -> ClaimSeen | None:
        """A volume claim; None if there is none of this name."""

    def run_in(self, pod: str, command: tuple[str, ...]) -> str:
        """Standard output of a command in the pod's container. Raises NotRunning."""
