"""A bed for the launchers' contract suite on a real Kubernetes cluster.

RESHAPE_TEST_CLUSTER names a JSON file: kubeconfig, namespace, image, python (in the image), claim
(read-write-many), folder (where this machine has that claim's files) and address (of this machine,
as pods see it). Does: as ``sidecar_bed.Bed``, with a pod for a container. The nodes are expected on
this machine: a process that is left is found in /proc. Never: skips silently; without the variable
every test of it fails and says so.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import uuid
from pathlib import Path

from reshape_launcher.kubernetes import pod
from reshape_launcher.kubernetes.client import ApiCluster, connect
from reshape_launcher.kubernetes.cluster import PodSeen
from reshape_launcher.kubernetes.devices import SimulatedDevices
from reshape_launcher.kubernetes.launcher import KubernetesLauncher
from reshape_launcher.kubernetes.settings import PodSettings
from reshape_launcher.spec import LaunchSpec
from reshape_sidecar import codec
from reshape_sidecar.init.processes import Marker
from reshape_sidecar.init.values import TRAINING_FILE, Training
from tests.coordinator_double import CoordinatorDouble
from tests.sidecar_bed import DEVICES, Bed

VARIABLE = "RESHAPE_TEST_CLUSTER"
OPEN_TO_ALL = 0o777
"""Volumes of a folder of the node know no fsGroup."""


class KubernetesBed(Bed):
    """One job in pods of a controller of its own."""

    def __init__(self, tmp_path: Path) -> None:
        named = os.environ.get(VARIABLE)
        assert named, f"{VARIABLE} names no cluster: make kubernetes sets it"
        self.cluster = json.loads(Path(named).read_text())
        self.path = tmp_path
        self.key = f"t-{uuid.uuid4().hex[:12]}"
        self.shared = Path(self.cluster["folder"]) / self.key
        self.code, self.checkpoints = self.shared / "code", self.shared / "checkpoints"
        for folder in (self.shared, self.code, self.checkpoints):
            folder.mkdir()
            folder.chmod(OPEN_TO_ALL)
        self.api: ApiCluster = connect(Path(self.cluster["kubeconfig"]), self.cluster["namespace"])
        settings = PodSettings(
            namespace=self.cluster["namespace"],
            controller=self.key,
            image=self.cluster["image"],
            finished_ttl_s=300,
        )
        devices = SimulatedDevices(len(DEVICES))
        self.launcher = self.kubernetes = KubernetesLauncher(self.api, settings, devices)
        self.coordinator = CoordinatorDouble(address=self.cluster["address"]).start()

    def spec(self, program: str, *words: str, **fields: object) -> LaunchSpec:
        values: dict[str, object] = {
            "command": (self.cluster["python"], "train.py", *words),
            "code": f"claim:{self.cluster['claim']}/{self.key}/code",
            "checkpoints": f"claim:{self.cluster['claim']}/{self.key}/checkpoints",
            "host": self.host,
        }
        return super().spec(program, *words, **(values | fields))

    @property
    def host(self) -> str:
        """The first node that is ready."""
        return next(host.name for host in asyncio.run(self.kubernetes.hosts()) if host.ready)

    @property
    def marker(self) -> Marker:
        return Marker("job-1", 1, f"{pod.ATTEMPT_FOLDER}/run/agent.sock")

    def pods(self) -> tuple[PodSeen, ...]:
        return self.api.pods(f"reshape.dev/controller={self.key}")

    def count(self) -> int:
        return len(self.pods())

    def process(self) -> Training:
        """The newest training process, by init's own file in the pod."""
        (found,) = self.pods()
        look = "import sys; print(open(sys.argv[1]).read())"
        path = f"{pod.ATTEMPT_FOLDER}/run/{TRAINING_FILE}"
        text = self.api.run_in(found.name, (pod.INTERPRETER, "-I", "-c", look, path))
        return codec.loads(Training, text.encode())

    def clear(self) -> None:
        """Remove what is left of this bed in the cluster and on the volume."""
        for status in asyncio.run(self.launcher.containers()):
            asyncio.run(self.launcher.remove(status.job, status.attempt, 0.0))
        selector = f"reshape.dev/controller={self.key}"
        for job in self.api.jobs(selector):
            self.api.delete_job(job.name)
        self.kubernetes.close()
        shutil.rmtree(self.shared)
