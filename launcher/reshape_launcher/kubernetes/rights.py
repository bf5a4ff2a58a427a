"""Every right that the controller needs in a cluster, and no other; deploy/ grants exactly these.

Never: a wildcard, or a right to read Secrets, create pods or write nodes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Right:
    """A verb on a kind of object. ``why`` explains it to an operator."""

    verb: str
    resource: str
    why: str
    group: str = ""
    subresource: str = ""
    of_cluster: bool = False
    """True if the right holds for the whole cluster, not for the namespace."""

    @property
    def text(self) -> str:
        """Return the right as ``kubectl auth can-i`` takes it."""
        name = f"{self.resource}.{self.group}" if self.group else self.resource
        return (
            f"{self.verb} {name}/{self.subresource}" if self.subresource else f"{self.verb} {name}"
        )


RIGHTS = (
    Right("create", "jobs", "launches an attempt", "batch"),
    Right("get", "jobs", "goes on with a launch that broke off", "batch"),
    Right("list", "jobs", "sees what is there", "batch"),
    Right("patch", "jobs", "lets a pod start, ends an attempt", "batch"),
    Right("delete", "jobs", "takes away a launch that never came to a pod", "batch"),
    Right("list", "pods", "sees what is there"),
    Right("list", "events", "says what keeps a pod from coming up, as a quota or a volume"),
    Right("delete", "pods", "ends an attempt with the grace that its save needs"),
    Right("create", "pods", "looks into a container whether its GPUs are free", "", "exec"),
    Right("get", "pods", "the same, as some clients ask for it", "", "exec"),
    Right("create", "secrets", "brings an attempt's files; no Secret is ever read"),
    Right("create", "configmaps", "brings the SideCar's code"),
    Right("create", "services", "brings the names of several workers' pods"),
    Right("get", "persistentvolumeclaims", "knows from which nodes files can be reached"),
    Right("get", "leases", "sees which controller leads", "coordination.k8s.io"),
    Right("create", "leases", "the first controller makes the lease", "coordination.k8s.io"),
    Right("update", "leases", "keeps the lease that it leads by", "coordination.k8s.io"),
    Right("list", "nodes", "knows the hosts", of_cluster=True),
    Right("get", "runtimeclasses", "doctor looks for it", "node.k8s.io", of_cluster=True),
)
