"""A real daemon that launches pods, for tests: what ``daemon_bed`` is for local containers.

Does: starts ``reshape up --launcher kubernetes`` on a namespace, puts scripts onto its volume,
finds a job's pod by the API and not by the launcher. Never: reaches into the daemon. State: its
home folder, and the namespace.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reshape_controller.cli.home import Home
from reshape_gpu.client import Client
from reshape_gpu.errors import ClientError
from reshape_gpu.target import of_home
from reshape_gpu.values import JobView
from tests.kubernetes import claim_folder, image
from tests.kubernetes.namespace import (
    CORE,
    PACKAGES,
    SHARED,
    Namespace,
    Thing,
    eventually,
    open_to_all,
)
from tests.support.daemon_bed import PROGRAM, ROOT, SAVES, Bed

KERAS = (ROOT / "examples" / "mnist_like" / "train.py").read_text()
"""An unmodified Keras script with MirroredStrategy."""
BATCH = 16
TENSORFLOW_S = 300.0
"""What several starts of TensorFlow may take on a loaded machine."""
KEEP_FINISHED_S = 5
"""Finished Jobs are sentinels for this long; then Kubernetes removes them."""
JOB_TYPE = "lenet"
SECONDS_PER_STEP = 0.12
ATTEMPT_LABEL = "reshape.dev/attempt"
JOB_ANNOTATION = "reshape.dev/job"
BATCH_GROUP = "/apis/batch/v1"
OF_JOBS = (
    ("jobs", BATCH_GROUP),
    *((kind, CORE) for kind in ("pods", "secrets", "services")),
    ("leases", "/apis/coordination.k8s.io/v1"),
)
KILLS_MAX = 60
"""A hand-over down and up has about twenty steps."""
POLL_S = 0.1
NODE_LEASES = "reshape-node-"
ENDED = ("completed", "failed", "cancelled", "rejected")


@dataclass(frozen=True, slots=True)
class Container:
    """What stays the same while only the training process is another one."""

    pod: str
    uid: str
    container: str
    restarts: int
    node: str


class PodDaemon(Bed):
    """A daemon on the nodes of a cluster, each with four simulated GPUs."""

    lasting: tuple[str, ...] = (claim_folder.POD,)
    """Names of what stays in the namespace while it runs."""
    unused: tuple[str, ...] = ()
    """Hosts that it is told to drain once it is up, so that no job goes there."""

    def __init__(self, folder: Path, namespace: Namespace) -> None:
        super().__init__(folder)
        self.namespace = namespace
        self.api = namespace.api
        grounds = namespace.grounds
        mounts = [] if grounds.packages is None else [{"claim": PACKAGES, "path": image.PACKAGES}]
        self.cluster_file = folder / "cluster.yaml"
        self.cluster_file.write_text(
            json.dumps(
                {
                    "namespace": namespace.name,
                    "image": grounds.image,
                    "storage_claim": SHARED,
                    "mounts": mounts,
                    "node_lease_namespace": namespace.name,
                    "keep_finished_s": KEEP_FINISHED_S,
                }
            )
        )
        truth = {"seconds_per_step": {JOB_TYPE: {"2": SECONDS_PER_STEP, "4": SECONDS_PER_STEP}}}
        self.truth = folder / "truth.json"
        self.truth.write_text(json.dumps(truth))
        with socket.create_server((grounds.address, 0)) as free:
            self.bind = f"{grounds.address}:{free.getsockname()[1]}"
        """The same after a restart, for pods go on asking there."""

    def open_claims(self, *names: str, folder: str = "") -> None:
        """Let records name further claims beside that of the code."""
        settings = json.loads(self.cluster_file.read_text())
        if names:
            settings["claims"] = [
                {"claim": name, "folder": where, "read_only": False}
                for name, where in ((SHARED, "code"), *((name, folder) for name in names))
            ]
        self.cluster_file.write_text(json.dumps(settings))

    def words(self) -> tuple[str, ...]:
        """Where this daemon launches, as ``up`` and ``doctor`` take it."""
        kubeconfig = str(self.namespace.grounds.kubeconfig)
        return (
            *("--launcher", "kubernetes", "--kubeconfig", kubeconfig),
            *("--cluster", str(self.cluster_file), "--sidecar-bind", self.bind),
        )

    def launch(self, *words: str, program: str = PROGRAM) -> subprocess.Popen[bytes]:
        """By the client, which brings what the playbook brings, in less processor time."""
        way = () if "--launch-by" in words else ("--launch-by", "client")
        truth = ("--device-truth", str(self.truth)) if self.simulated else ()
        return super().launch(*self.words(), *way, *truth, *words, program=program)

    def up(self, *words: str, program: str = PROGRAM) -> None:
        """Start it and wait until it takes requests."""
        super().up(*words, program=program)
        for host in self.unused:
            self.drain(host)
        self.unused = ()

    def drain(self, host: str) -> None:
        """Drain a host, once it is known."""
        eventually(f"{host} is drained", lambda: self.reshape("drain", host).returncode == 0)

    def killed_after_every_step(self, *words: str, until: Callable[[], bool]) -> int:
        """One daemon after the other, each killed right after its first step; how many were.

        The last one stays, without being killed. ``until`` is asked while a daemon lives.
        """
        killed = 0
        while True:
            life = self.launch(*words, program="tests.support.killed_daemon")
            while life.poll() is None:
                if until():
                    self.stop()
                    self.up(*words)
                    return killed
                time.sleep(POLL_S)
            assert life.returncode == -signal.SIGKILL, self.log.read_text()
            killed += 1
            assert killed < KILLS_MAX, self.log.read_text()

    def place(self, name: str, script: str) -> str:
        """Put a script onto the shared volume; where it is, as a record says it.

        It may write beside itself there.
        """
        folder = self.namespace.shared / "code" / name
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(folder, Path):
            open_to_all(folder)
        (folder / f"{name}.py").write_text(script)
        return f"claim:{SHARED}/code/{name}"

    def submit_keras(
        self, name: str, sizes: list[int], steps: int, *, batch: int = BATCH, **fields: Any
    ) -> str:
        """Submit a paced Keras job; its id.

        It has one epoch: TensorFlow stalls between epochs on logical CPU devices.
        """
        words = ["python", f"{name}.py", "--epochs", "1", "--samples", str(steps * batch)]
        words += ["--batch", str(batch)]
        return self.submit_record(
            name,
            KERAS,
            command=words,
            framework="keras",
            optional_gpus=sizes,
            steps=steps,
            global_batch=batch,
            job_type=JOB_TYPE,
            **fields,
        )

    def submit_counting(self, name: str, sizes: list[int], steps: int, **fields: Any) -> str:
        """Submit a job that counts; its id."""
        return self._submitted(self.counting_record(name, sizes, steps, **fields))

    def counting_record(self, name: str, sizes: list[int], steps: int, **fields: Any) -> Path:
        """The record of a job that counts steps of 0.1 s, without TensorFlow."""
        return self.program_record(name, SAVES, sizes, steps, str(steps), **fields)

    def submit_program(
        self, name: str, script: str, sizes: list[int], steps: int, **fields: Any
    ) -> str:
        """Submit a program without TensorFlow; its id."""
        return self._submitted(self.program_record(name, script, sizes, steps, **fields))

    def program_record(
        self, name: str, script: str, sizes: list[int], steps: int, *words: str, **fields: Any
    ) -> Path:
        """The record of a program without TensorFlow, which gets ``words``."""
        command = ["python", f"{name}.py", *words]
        own = {"command": command, "framework": "other", "optional_gpus": sizes, "steps": steps}
        own["may_restart"] = True  # a level 0 program reports no step, so it proves no save
        return self.script_record(name, script, **own, **fields)

    def submit_record(self, name: str, script: str, **fields: Any) -> str:
        """Submit a job whose script is on the shared volume; its id."""
        return self._submitted(self.script_record(name, script, **fields))

    def _submitted(self, record: Path) -> str:
        return str(self.json("submit", str(record))["id"])

    def script_record(self, name: str, script: str, **fields: Any) -> Path:
        """The record of a job whose script is on the shared volume."""
        record = {"name": name, "code": self.place(name, script), **fields}
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(record))
        return path

    def client(self) -> Client:
        """Asks the daemon without the start of a program; for what changes quickly."""
        return Client.at(of_home(Home(self.home)))

    def jobs(self) -> dict[str, JobView] | None:
        """All jobs by name; None while nobody answers."""
        try:
            return {job.name: job for job in self.client().page().jobs}
        except ClientError:
            return None

    def view(self, key: str) -> JobView | None:
        """The job now; None while nobody answers."""
        try:
            return self.client().get(key)
        except ClientError:
            return None

    def wait(self, key: str, text: str, **wanted: object) -> JobView:
        """Wait until fields of a job have these values; the job."""

        def there() -> JobView | None:
            job = self.view(key)
            if job is None:
                return None
            over = job.state in ENDED and wanted.get("state", job.state) != job.state
            assert not over, f"{text}: it is {job.state}"
            right = all(getattr(job, name) == value for name, value in wanted.items())
            return job if right else None

        try:
            return eventually(text, there, TENSORFLOW_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.view(key)}; {self.history(key)}") from None

    def trains(self, key: str, size: int, **more: object) -> JobView:
        """Wait until the job trains on so many GPUs and has made a step there."""
        self.wait(key, f"trains on {size}", state="running", stage="training", size=size, **more)
        return self.wait(key, f"runs on {size}", phase="running", size=size, stage="training")

    def history(self, key: str) -> str:
        """What the daemon tells of a job."""
        return self.reshape("describe", key).stdout

    def pods_of(self, key: str) -> list[Thing]:
        """Pods of a job, as the API server has them."""
        pods = self.namespace.things("pods")
        return [
            pod for pod in pods if pod["metadata"].get("annotations", {}).get(JOB_ANNOTATION) == key
        ]

    def container(self, key: str, attempt: int = 1) -> Container:
        """The one running container of an attempt."""
        (found,) = self.containers(key, 1, attempt)
        return found

    def containers(self, key: str, workers: int, attempt: int = 1) -> list[Container]:
        """The running containers of an attempt, by the names of their pods.

        A pod of a node that is silent is called running for as long as that lasts.
        """

        def running() -> list[Container] | None:
            of = {ATTEMPT_LABEL: str(attempt)}.items()
            mine = [pod for pod in self.pods_of(key) if of <= pod["metadata"]["labels"].items()]
            found = [pod for pod in mine if pod["status"]["phase"] == "Running"]
            known = [_container_of(pod) for pod in found]
            if len(found) != workers or None in known:
                return None
            return sorted((one for one in known if one is not None), key=lambda one: one.pod)

        return eventually(f"{workers} running pods of {key}", running)

    def running_attempts(self, key: str) -> set[int]:
        """Attempts of a job whose pods the API server calls running."""
        return {
            int(pod["metadata"]["labels"][ATTEMPT_LABEL])
            for pod in self.pods_of(key)
            if pod["status"]["phase"] == "Running"
        }

    def idle_gpus(self) -> int:
        """How many GPUs could be given to a job now."""
        return sum(gpu["state"] == "idle" for gpu in self.json("gpus")["gpus"])

    def nothing_left(self) -> None:
        """Wait until nothing that a launch or a controller makes is in the namespace."""

        def left() -> list[str]:
            kinds = [self.namespace.things(kind, group=group) for kind, group in OF_JOBS]
            names = [thing["metadata"]["name"] for kind in kinds for thing in kind]
            return [
                name
                for name in names
                if name not in self.lasting and not name.startswith(NODE_LEASES)
            ]

        eventually("nothing of a job is left", lambda: not left())

    def close(self) -> None:
        if self.daemon is not None and self.daemon.poll() is None:
            self.daemon.kill()
            self.daemon.wait()


def _container_of(pod: Thing) -> Container | None:
    (status,) = pod["status"].get("containerStatuses") or [{}]
    if not status.get("containerID"):
        return None
    name, uid, node = pod["metadata"]["name"], pod["metadata"]["uid"], pod["spec"]["nodeName"]
    return Container(name, uid, status["containerID"], status["restartCount"], node)


def cordon(namespace: Namespace, node: str, wanted: bool) -> None:
    """What ``kubectl cordon`` and ``uncordon`` do."""
    namespace.api.change(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": wanted}})
