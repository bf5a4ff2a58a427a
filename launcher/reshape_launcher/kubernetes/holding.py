"""Whether GPUs of a node hold memory, looked at in a pod of ours that runs there.

Does: runs the probe in the first such container that answers. Never: takes another's word for it,
or names who holds the memory: process ids that NVML tells are those of the node, and a container
cannot read them. State: none.
"""

from __future__ import annotations

from reshape_launcher.kubernetes import naming, pod
from reshape_launcher.kubernetes.cluster import ApiTrouble, Cluster, NotRunning
from reshape_launcher.kubernetes.settings import PodSettings
from reshape_sidecar import codec
from reshape_sidecar.gpu import Inventory


def held(cluster: Cluster, settings: PodSettings, node: str, devices: tuple[str, ...]) -> str:
    """Why one of ``devices`` cannot be called empty; nothing if all are, or if no pod of ours runs
    on the node: then the end of the container that had them is all that is known.

    Raises ApiTrouble.
    """
    for seen in cluster.pods(naming.selector(settings.controller)):
        if seen.node != node or seen.over or not seen.started:
            continue
        try:
            found = codec.loads(Inventory, cluster.run_in(seen.name, pod.gpus()))
        except NotRunning:
            continue
        except codec.CodecError as error:
            raise ApiTrouble(f"pod {seen.name}", 0, f"its probe: {error}") from error
        shown = {gpu.uuid: gpu for gpu in found.gpus}
        for uuid in devices:
            why = shown[uuid].busy if uuid in shown else f"GPU {uuid} is not visible on {node}"
            if why:
                return why
        return ""
    return ""
