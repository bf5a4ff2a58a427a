"""A cluster as somebody else has it, for the tests that find theirs by KUBECONFIG.

    python -m tests.kubernetes.foreign up|down

Does: brings our two nodes up and makes of them what a cluster of others looks like: TensorFlow in
the image, a registry by that image's name, a storage class that makes volumes, Services that work,
credentials in one file. Prints what to export. Never: tells the tests more than these variables.
State: that of the cluster, and the image in the cache folder.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.kubernetes import (
    cgroups,
    cluster,
    control_plane,
    grounds,
    image,
    layout,
    network,
    packages,
    volumes,
)
from tests.kubernetes import node as nodes
from tests.kubernetes.api import Api
from tests.kubernetes.layout import NODES, ROOT
from tests.kubernetes.running import Daemon

REGISTRY_PORT = 5005
IMAGE = f"localhost:{REGISTRY_PORT}/team/training:1"
"""Nodes ask a registry of their own by plain HTTP."""
KUBECONFIG = ROOT / "foreign.kubeconfig"


def up() -> None:
    """Bring it up and print the environment of its tests. Raises ClusterError."""
    cluster.prepare()
    archive = _archive()
    cluster.up()
    with ThreadPoolExecutor(len(NODES)) as pool:
        list(pool.map(lambda node: nodes.take_in(node, archive), NODES))
    volumes.make_class(Api.of(control_plane.ADMIN))
    Daemon("volumes").start(sys.executable, "-m", volumes.__name__)
    for node in NODES:
        serve = (sys.executable, "-I", "-m", "http.server", str(REGISTRY_PORT))
        Daemon(f"registry-{node.name}").start(
            *(*network.enter(node), *serve, "--directory", os.devnull), groups=cgroups.make(node)
        )
    _write_kubeconfig()
    print(*(f"export {name}={value}" for name, value in environment().items()), sep="\n")


def environment() -> dict[str, str]:
    """What its operator would export."""
    return {
        "KUBECONFIG": str(KUBECONFIG),
        grounds.IMAGE: IMAGE,
        grounds.ADDRESS: layout.BRIDGE_ADDRESS,
        grounds.STORAGE: volumes.CLASS,
    }


def _archive() -> Path:
    """The image with the packages of pods in it."""
    folder = packages.folder()
    archive = layout.cache() / f"foreign-{image.RECIPE}-{folder.name}.tar"
    if not archive.exists():
        print(f"making the image {archive} (some minutes, once)", flush=True)
        with tempfile.TemporaryDirectory(dir=archive.parent, prefix="image-") as scratch:
            made = image.with_packages(folder, IMAGE, Path(scratch))
            made.rename(archive)
    return archive


def _write_kubeconfig() -> None:
    """Everything in one file, as others hand it out."""
    whole = json.loads(control_plane.ADMIN.read_text())
    for entry in whole["clusters"]:
        trusted = Path(entry["cluster"].pop("certificate-authority")).read_bytes()
        entry["cluster"]["certificate-authority-data"] = base64.b64encode(trusted).decode()
    KUBECONFIG.touch(mode=0o600)
    KUBECONFIG.write_text(json.dumps(whole))


def main() -> int:
    """The command line; exit code 1 and one message if something cannot be done."""
    parser = argparse.ArgumentParser(prog="foreign", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("verb", choices=("up", "down"))
    asked = parser.parse_args()
    return cluster.carry_out(asked.verb, up if asked.verb == "up" else cluster.down)


if __name__ == "__main__":
    sys.exit(main())
