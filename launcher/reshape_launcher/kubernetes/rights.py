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
    of_node_leases: bool = False
    """True if the right holds for the namespace of the Leases of nodes."""

    @property
    def text(self) -> str:
        """Return the right as ``kubectl auth can-i`` takes it."""
        name = f"{self.resource}.{self.group}" if self.group else self.resource
        return (
            f"{self.verb} {name}/{self.subresource}" if self.subresource else f"{self.verb} {name}"
        )


WHO = "give each node's GPUs to one controller alone"
RIGHTS = (
    Right("create", "jobs", "launch an attempt", "batch"),
    Right("get", "jobs", "complete an interrupted launch", "batch"),
    Right("list", "jobs", "see existing pods and Jobs", "batch"),
    Right("watch", "jobs", "see when to list them", "batch"),
    Right("patch", "jobs", "start and end an attempt", "batch"),
    Right("delete", "jobs", "remove a launch that has no pod", "batch"),
    Right("list", "pods", "see existing pods and Jobs"),
    Right("watch", "pods", "see when to list them"),
    Right("list", "events", "explain why a pod does not start (quota, volume)"),
    Right("delete", "pods", "end an attempt with time to save"),
    Right("create", "pods", "check in a container that its GPUs are free", "", "exec"),
    Right("get", "pods", "the same, for clients that use GET", "", "exec"),
    Right("create", "secrets", "store an attempt's files (never read back)"),
    Right("create", "configmaps", "store the SideCar's code"),
    Right("create", "services", "name the pods of several workers"),
    Right("get", "persistentvolumeclaims", "find the nodes that reach a job's files"),
    Right("get", "leases", "see which controller leads", "coordination.k8s.io"),
    Right("create", "leases", "create the lease", "coordination.k8s.io"),
    Right("update", "leases", "renew the lease", "coordination.k8s.io"),
    Right(*("list", "leases", WHO, "coordination.k8s.io"), of_node_leases=True),
    Right(*("create", "leases", WHO, "coordination.k8s.io"), of_node_leases=True),
    Right(*("update", "leases", WHO, "coordination.k8s.io"), of_node_leases=True),
    Right("list", "nodes", "list the hosts", of_cluster=True),
    Right("watch", "nodes", "see the changes of hosts", of_cluster=True),
    Right("get", "runtimeclasses", "check it in reshape doctor", "node.k8s.io", of_cluster=True),
)
