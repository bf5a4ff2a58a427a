"""A bed for tests of a launcher whose containers are pods, as ``sidecar_bed`` for local ones.

Does: launches one job in a namespace, finds its processes, and ends everything when the test is
over. The nodes are on this machine, so what is left of a pod is found in /proc. Never: touches what
another controller made. State: the cluster's, and a folder of the shared volume.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from reshape_launcher.kubernetes import pod
from reshape_launcher.kubernetes.api import connect
from reshape_launcher.kubernetes.gpus import SimulatedDevices
from reshape_launcher.kubernetes.launcher import KubernetesLauncher
from reshape_launcher.kubernetes.settings import PodSettings
from reshape_launcher.kubernetes.values import PodInfo
from reshape_launcher.spec import LaunchSpec
from reshape_sidecar import codec
from reshape_sidecar.init.processes import Marker
from reshape_sidecar.init.values import TRAINING_FILE, TrainingProcess
from tests.kubernetes import cgroups
from tests.kubernetes.layout import NODES
from tests.kubernetes.namespace import SHARED, Namespace
from tests.support.coordinator_double import CoordinatorDouble
from tests.support.shared_folder import SharedFolder
from tests.support.sidecar_bed import DEVICES, Bed

CONTROLLER = "test"


class PodBed(Bed):
    """One job in pods."""

    def __init__(self, tmp_path: Path, namespace: Namespace) -> None:
        self.path = tmp_path
        self.code = namespace.make_folder("code")
        self.checkpoints = namespace.make_folder("checkpoints")
        grounds = namespace.grounds
        self.own, self.shared = grounds.own, namespace.shared
        self.api = connect(grounds.kubeconfig, namespace.name)
        self.settings = PodSettings(
            namespace=namespace.name,
            controller=CONTROLLER,
            image=grounds.image,
            storage_claim=SHARED,
            storage_folder=str(namespace.folder) if self.own else None,
        )
        self.devices = SimulatedDevices(len(DEVICES))
        self.launcher = self.kubernetes = KubernetesLauncher(self.api, self.settings, self.devices)
        self.coordinator = CoordinatorDouble(address=grounds.address).start()

    def spec(self, program: str, *words: str, **fields: object) -> LaunchSpec:
        values: dict[str, object] = {
            "command": ("python", "train.py", *words),
            "code": f"claim:{SHARED}/code",
            "checkpoints": f"claim:{SHARED}/checkpoints",
            "host": self.host,
        }
        return super().spec(program, *words, **(values | fields))

    @property
    def host(self) -> str:
        """The first node that is ready."""
        hosts = asyncio.run(self.kubernetes.hosts())
        return next(host.name for host in hosts if host.ready)

    @property
    def marker(self) -> Marker:
        return Marker("job-1", 1, f"{pod.ATTEMPT_FOLDER}/run/agent.sock")

    @property
    def markers(self) -> tuple[Marker, ...]:
        return (self.marker,)  # each pod has the same paths

    def pods(self) -> tuple[PodInfo, ...]:
        return self.api.pods(f"reshape.dev/controller={CONTROLLER}")

    def logs(self) -> SharedFolder:
        """On the claim; where that is no folder of this machine, the launcher knows of none."""
        if self.own:
            return super().logs()
        assert self.launcher.log_path("job-1", 1) is None
        return self.shared / "job-1" / "attempt-1" / "logs"

    def count(self) -> int:
        return len(self.pods())

    def left(self) -> list[int]:
        """On this cluster's nodes alone: the pods of another have the same paths.

        Of nodes that are elsewhere it is the first process of each pod, as the API has it.
        """
        if not self.own:
            return [1 for pod in self.pods() if not pod.over]
        found = super().left()
        ours = {pid for node in NODES for pid in cgroups.pids(node)}
        return [pid for pid in found if pid in ours]

    def process(self) -> TrainingProcess:
        """The newest training process, by init's own file in the pod."""
        (found,) = self.pods()
        look = "import sys; print(open(sys.argv[1]).read())"
        path = f"{pod.ATTEMPT_FOLDER}/run/{TRAINING_FILE}"
        text = self.api.run_in(found.name, (pod.INTERPRETER, "-I", "-c", look, path))
        return codec.loads(TrainingProcess, text.encode())

    def clear(self) -> None:
        for status in asyncio.run(self.launcher.containers()):
            asyncio.run(self.launcher.remove(status.job, status.attempt, 0.0))
        self.kubernetes.close()
