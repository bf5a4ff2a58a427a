"""GPUs that are not there: a stand-in of NVML that a container runtime of its own puts into pods.

Does: as the runtime of a GPU maker does, the handler ``nvidia`` of the test nodes brings the
library into every container that it starts, and nobody else has it. Which GPUs a node has, and what
they hold, is a file of the node that a test writes. Never: a GPU; nothing computes on these.
State: the library and the file, in the node's folder.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.kubernetes.layout import Node
from tests.kubernetes.running import ClusterError, run

HANDLER = "nvidia"
SOURCE = Path(__file__).with_name("nvml.c")
LIBRARY = "/usr/lib/libnvidia-ml.so.1"
GPUS = "/run/gpus"
TOTAL_BYTES = 80 << 30


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU of the stand-in."""

    uuid: str
    used_bytes: int = 0
    name: str = "NVIDIA H100 80GB HBM3"


def runtime_spec(node: Node) -> dict[str, object]:
    """What every container of the handler begins with: the usual, and the stand-in."""
    spec: dict[str, object] = json.loads(run("ctr", "oci", "spec"))
    mounts = spec["mounts"]
    assert isinstance(mounts, list)
    for inside, name in ((LIBRARY, "library.so"), (GPUS, "gpus")):
        source = str(_folder(node) / name)
        options = ["rbind", "ro"]
        mounts.append({"destination": inside, "type": "bind", "source": source, "options": options})
    return spec


def install(node: Node, *gpus: Gpu) -> None:
    """Build the library, and let the node have these GPUs. Raises ClusterError."""
    if shutil.which("gcc") is None:
        raise ClusterError("gcc is not there; apt-get install gcc libc6-dev")
    _folder(node).mkdir(exist_ok=True)
    library = _folder(node) / "library.so"
    run("gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, SOURCE)
    library.chmod(0o755)
    has(node, *gpus)


def has(node: Node, *gpus: Gpu) -> None:
    """From now on the node has these GPUs, for containers that run as well."""
    folder = _folder(node) / "gpus"
    folder.mkdir(mode=0o755, exist_ok=True)
    lines = (f"{gpu.uuid} {gpu.used_bytes} {TOTAL_BYTES} {gpu.name}\n" for gpu in gpus)
    (folder / "list").write_text("".join(lines))
    (folder / "list").chmod(0o644)


def _folder(node: Node) -> Path:
    return node.folder / "stand-in"
