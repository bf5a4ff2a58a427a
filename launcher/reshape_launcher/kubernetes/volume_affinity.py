"""The nodes that reach a job's volume claims: all nodes, or only one, on which no gang can be.

Does: read the access modes of every claim that the job's pod mounts, and find the node of a claim
that only one node may use. It changes no claim.
"""

from __future__ import annotations

from reshape_launcher.kubernetes import naming
from reshape_launcher.kubernetes.pod_mounts import CHECKPOINTS, CODE, DATASET, mounts_of
from reshape_launcher.kubernetes.settings import PodSettings
from reshape_launcher.kubernetes.values import ClaimInfo, ClusterApi
from reshape_launcher.spec import LaunchSpec, OneHost, RecordRefused

MANY_WRITERS = "ReadWriteMany"
MANY_READERS = "ReadOnlyMany"
FIELDS = {CODE: "code", CHECKPOINTS: "checkpoints", DATASET: "dataset"}
"""By folder of the pod, the field of a record that names its claim."""


def is_shared(claim: ClaimInfo, *, written: bool) -> bool:
    """True if pods on any number of nodes may use the claim."""
    return MANY_WRITERS in claim.modes or (not written and MANY_READERS in claim.modes)


def one_host(cluster: ClusterApi, settings: PodSettings, spec: LaunchSpec) -> OneHost | None:
    """Return the node that a launched attempt is bound to; None: it may continue on any node.

    Raises LaunchError (the record's folders; a gang that not all its hosts can be for) and
    KubernetesError.
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
        if spec.shares:
            raise _out_of_reach(settings, spec, name, claim, written=written[name])
        host = _node_using(cluster, settings, name) or claim.node or spec.host
        what = "checkpoints" if name in checkpoint_claims else "files"
        modes = ", ".join(claim.modes)
        return OneHost(host, f"its {what} are on the claim {name} ({modes}), bound to {host}")
    return None


def _out_of_reach(
    settings: PodSettings, spec: LaunchSpec, name: str, claim: ClaimInfo, *, written: bool
) -> RecordRefused:
    """Return that a claim is not reachable from every host of a gang."""
    claims = mounts_of(spec, settings).claims
    fields = [FIELDS[m.path] for m in claims if m.claim == name and m.path in FIELDS]
    of_controller = "storage_claim" if name == settings.storage_claim else "mounts"
    modes, hosts = ", ".join(claim.modes), " and ".join(spec.hosts)
    what = f"the claim {name} ({modes}) is for pods of one node, and the gang is on {hosts}"
    needed = MANY_WRITERS if written else MANY_READERS
    remedy = f"use a claim with {needed}, or submit with `span: never`"
    return RecordRefused(fields[0] if fields else of_controller, what, remedy)


def _node_using(cluster: ClusterApi, settings: PodSettings, claim: str) -> str:
    """Return the node on which a pod of this controller uses the claim; empty if none does."""
    for pod in cluster.pods(naming.selector(settings.controller)):
        if claim in pod.claims and pod.node and not pod.over:
            return pod.node
    return ""
