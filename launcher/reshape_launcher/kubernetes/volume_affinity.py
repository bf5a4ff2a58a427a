"""From which nodes a job's volume claims can be reached: from all, or from one alone.

Does: looks at the access modes of every claim that the job's pod mounts, and where a claim is that
only one node may have. Never: waits, changes a claim, or moves what is on it. State: none.
"""

from __future__ import annotations

from reshape_launcher.kubernetes import naming
from reshape_launcher.kubernetes.pod_mounts import CHECKPOINTS, mounts_of
from reshape_launcher.kubernetes.settings import PodSettings
from reshape_launcher.kubernetes.values import ClaimSeen, Cluster
from reshape_launcher.spec import LaunchSpec, OneHost

MANY_WRITERS = "ReadWriteMany"
MANY_READERS = "ReadOnlyMany"


def many(claim: ClaimSeen, *, written: bool) -> bool:
    """Whether pods on any number of nodes may have the claim."""
    return MANY_WRITERS in claim.modes or (not written and MANY_READERS in claim.modes)


def one_host(cluster: Cluster, settings: PodSettings, spec: LaunchSpec) -> OneHost | None:
    """The node that the attempt is bound to once it is launched; None: it may go on anywhere.

    Raises LaunchError (the record's folders) and ApiTrouble.
    """
    mounts = (*settings.mounts, *mounts_of(spec, settings).mounts)
    kept = {mount.claim for mount in mounts if mount.path == CHECKPOINTS}
    written = {mount.claim: False for mount in mounts}
    for mount in mounts:
        written[mount.claim] |= not mount.read_only
    for name in sorted(written, key=lambda name: (name not in kept, name)):
        claim = cluster.claim(name)
        if claim is None or many(claim, written=written[name]):
            continue
        host = _used_on(cluster, settings, name) or claim.node or spec.host
        what = "checkpoints" if name in kept else "files"
        modes = ", ".join(claim.modes)
        return OneHost(host, f"its {what} are on the claim {name} ({modes}), bound to {host}")
    return None


def _used_on(cluster: Cluster, settings: PodSettings, claim: str) -> str:
    """The node on which a pod of ours has the claim now; empty if there is none."""
    for pod in cluster.pods(naming.selector(settings.controller)):
        if claim in pod.claims and pod.node and not pod.over:
            return pod.node
    return ""
