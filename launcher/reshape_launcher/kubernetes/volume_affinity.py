"""The nodes that reach a job's volume claims: all nodes, or only one.

Does: read the access modes of every claim that the job's pod mounts, and find the node of a claim
that only one node may use. It changes no claim.
"""

from __future__ import annotations

from reshape_launcher.kubernetes import naming
from reshape_launcher.kubernetes.pod_mounts import CHECKPOINTS, mounts_of
from reshape_launcher.kubernetes.settings import PodSettings
from reshape_launcher.kubernetes.values import ClaimInfo, ClusterApi
from reshape_launcher.spec import LaunchSpec, OneHost

MANY_WRITERS = "ReadWriteMany"
MANY_READERS = "ReadOnlyMany"


def is_shared(claim: ClaimInfo, *, written: bool) -> bool:
    """True if pods on any number of nodes may use the claim."""
    return MANY_WRITERS in claim.modes or (not written and MANY_READERS in claim.modes)


def one_host(cluster: ClusterApi, settings: PodSettings, spec: LaunchSpec) -> OneHost | None:
    """Return the node that a launched attempt is bound to; None: it may continue on any node.

    Raises LaunchError (the record's folders) and KubernetesError.
    """
    mounts = (*settings.mounts, *mounts_of(spec, settings).claims)
    checkpoint_claims = {mount.claim for mount in mounts if mount.path == CHECKPOINTS}
    written = {mount.claim: False for mount in mounts}
    for mount in mounts:
        written[mount.claim] |= not mount.read_only
    for name in sorted(written, key=lambda name: (name not in checkpoint_claims, name)):
        claim = cluster.claim(name)
        if claim is None or is_shared(claim, written=written[name]):
            continue
        host = _node_using(cluster, settings, name) or claim.node or spec.host
        what = "checkpoints" if name in checkpoint_claims else "files"
        modes = ", ".join(claim.modes)
        return OneHost(host, f"its {what} are on the claim {name} ({modes}), bound to {host}")
    return None


def _node_using(cluster: ClusterApi, settings: PodSettings, claim: str) -> str:
    """Return the node on which a pod of this controller uses the claim; empty if none does."""
    for pod in cluster.pods(naming.selector(settings.controller)):
        if claim in pod.claims and pod.node and not pod.over:
            return pod.node
    return ""
