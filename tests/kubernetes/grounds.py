"""The cluster that tests run on: the one of KUBECONFIG if that is set, else two nodes of our own.

    python -m tests.kubernetes.grounds check|prepare

Does: gives its API, its image, and the address by which its pods reach this machine. Never: skips:
what is missing is one message with the remedy. State: none; a cluster of our own keeps its files.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kubernetes import cluster, control_plane, image, layout, machine, packages
from tests.kubernetes.api import Api
from tests.kubernetes.running import ClusterError

IMAGE, ADDRESS, STORAGE = "RESHAPE_KUBE_IMAGE", "RESHAPE_KUBE_ADDRESS", "RESHAPE_KUBE_STORAGE_CLASS"
NODES_LEAST = 2
_MEANINGS = {
    IMAGE: f"an image whose python3 is {image.PYTHON_VERSION} and has TensorFlow and Tornado",
    ADDRESS: "the address by which pods reach this machine",
    STORAGE: "a storage class with access by many writers",
}


@dataclass(frozen=True)
class Grounds:
    """A cluster, ready for tests."""

    kubeconfig: Path
    api: Api
    image: str
    address: str
    """Where a pod finds a server that listens on this machine."""
    packages: Path | None
    """Folder of the Python packages that pods mount; None: they are in the image."""
    storage_class: str | None
    """Of volumes that several nodes write; None: folders of this machine."""
    nodes: tuple[str, ...]
    """Names of those that take pods, at least two."""

    @property
    def own(self) -> bool:
        """Whether its nodes are ours to kill."""
        return self.packages is not None


def check() -> None:
    """Raises ClusterError, or ApiError, with the remedy where there can be no cluster."""
    given = os.environ.get("KUBECONFIG")
    if given:
        _given(Path(given))
    else:
        machine.check()


def prepare() -> None:
    """What takes minutes once, where nodes of our own are to be started. Raises as ``check``."""
    check()
    if not os.environ.get("KUBECONFIG"):
        cluster.prepare()


@contextmanager
def grounds() -> Iterator[Grounds]:
    """The cluster; one that was brought up for this is gone afterwards. Raises ClusterError."""
    given = os.environ.get("KUBECONFIG")
    if given:
        yield _given(Path(given))
        return
    with cluster.used():
        cluster.prepare()
        brought_up = cluster.up(owned=True)
        try:
            yield Grounds(
                control_plane.ADMIN,
                Api.of(control_plane.ADMIN),
                image.BASE,
                layout.BRIDGE_ADDRESS,
                packages.folder(),
                None,
                tuple(node.name for node in layout.NODES),
            )
        finally:
            if brought_up:
                cluster.down()


def _given(kubeconfig: Path) -> Grounds:
    missing = [f"{name} ({why})" for name, why in _MEANINGS.items() if not os.environ.get(name)]
    if missing:
        raise ClusterError(
            f"KUBECONFIG={kubeconfig} names a cluster; tests on it also need {', '.join(missing)}; "
            "set them, or unset KUBECONFIG to start two nodes on this machine"
        )
    api = Api.of(kubeconfig)
    api.get("/version")
    nodes = tuple(sorted(usable(api)))
    if len(nodes) < NODES_LEAST:
        raise ClusterError(
            f"KUBECONFIG={kubeconfig} names a cluster with too few nodes that are ready and take "
            f"pods ({', '.join(nodes) or 'none'}); tests move jobs between {NODES_LEAST}"
        )
    said = os.environ
    return Grounds(kubeconfig, api, said[IMAGE], said[ADDRESS], None, said[STORAGE], nodes)


def usable(api: Api) -> Iterator[str]:
    """Names of the nodes that are ready and take any pod."""
    for node in api.get("/api/v1/nodes")["items"]:
        ready = {"type": "Ready", "status": "True"}.items()
        taints = node["spec"].get("taints", ())  # a cordon is one as well
        if any(ready <= found.items() for found in node["status"]["conditions"]) and not any(
            taint["effect"].startswith("No") for taint in taints
        ):
            yield str(node["metadata"]["name"])


def main() -> int:
    """The command line; exit code 1 and one message if there can be no cluster."""
    parser = argparse.ArgumentParser(prog="grounds", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("verb", choices=("check", "prepare"))
    asked = parser.parse_args()
    return cluster.carry_out(asked.verb, check if asked.verb == "check" else prepare)


if __name__ == "__main__":
    sys.exit(main())
