"""The controller in a pod, from the manifests of deploy/, in a test's namespace.

Does: applies the documents with the image, the code and the address of this cluster in them, and
runs commands in the pod. Never: gives the pod a kubeconfig, or another right than the manifest's.
State: the cluster's.
"""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

from kubernetes import client, config, stream
from kubernetes.stream.ws_client import ERROR_CHANNEL

from tests.kubernetes import image, packages
from tests.kubernetes.api import ApiError
from tests.kubernetes.claim_folder import ClaimFolder
from tests.kubernetes.deployed import Document, by_name
from tests.kubernetes.namespace import (
    PACKAGES,
    SHARED,
    SHARED_PATH,
    Namespace,
    Thing,
    eventually,
    open_to_all,
)
from tests.support.daemon_bed import ROOT, SOURCES

COMMAND = ("python3", "-m", "reshape_controller.cli.main")
RBAC = "/apis/rbac.authorization.k8s.io/v1"
APPS = "/apis/apps/v1"
GROUPS = {"Deployment": APPS, "Role": RBAC, "RoleBinding": RBAC}
RUN_S = 120.0
KEEP_FINISHED_S = 5
STORAGE = "/var/lib/reshape-storage"
"""Where the controller's pod finds the logs of jobs."""


class ControllerPod:
    """What an operator gets who applies ``documents``."""

    def __init__(self, namespace: Namespace, documents: list[Document]) -> None:
        self.namespace, self.api = namespace, namespace.api
        self._documents = documents
        self._of_cluster: list[str] = []
        self._code = {"source": ROOT, "libraries": packages.folder(packages.CONTROLLER)}
        self.address = ""
        """The Service's."""

    def apply(self) -> None:
        """Make everything; the Service first, for its address is in the Deployment."""
        space = self.namespace
        self.bring_code()
        home = self.home()
        self._documents.sort(key=lambda document: document["kind"] == "Deployment")
        for document in self._documents:
            kind, name = document["kind"], document["metadata"]["name"]
            if kind == "PersistentVolumeClaim":
                space.claim(name, home)
            elif kind.startswith("ClusterRole"):
                path = f"{RBAC}/{kind.lower()}s"
                self.api.create(path, document)
                self._of_cluster.append(f"{path}/{name}")
            else:
                if kind == "Deployment":
                    self.fit(document)
                path = space.path(f"{kind.lower()}s", group=GROUPS.get(kind, "/api/v1"))
                made = self.api.create(path, document)
                if kind == "Service":
                    self.address = made["spec"]["clusterIP"]

    def cluster_file(self) -> None:
        """Put this cluster's settings in place of the sample's."""
        grounds = self.namespace.grounds
        mounts = [] if grounds.packages is None else [{"claim": PACKAGES, "path": image.PACKAGES}]
        settings = {
            "namespace": self.namespace.name,
            "image": grounds.image,
            "storage_claim": SHARED,
            "mounts": mounts,
            "node_lease_namespace": self.namespace.name,
            "keep_finished_s": KEEP_FINISHED_S,
            "storage_folder": STORAGE,
        }
        found = by_name(self._documents)["ConfigMap", "reshape"]
        found["data"]["cluster.yaml"] = json.dumps(settings)

    def ready(self) -> Thing:
        """Wait for a pod that is ready; the pod."""

        def there() -> Thing | None:
            for pod in self.pods():
                conditions = {c["type"]: c["status"] for c in pod["status"].get("conditions", ())}
                if conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]:
                    return pod
            return None

        try:
            return eventually("the controller is ready", there, 300.0)
        except AssertionError as error:
            logs = [self.namespace.logs(pod["metadata"]["name"]) for pod in self.pods()]
            raise AssertionError(f"{error}: {self.pods()}; {logs}") from None

    def pods(self) -> list[Thing]:
        label = "app.kubernetes.io/component"
        found = self.namespace.things("pods")
        return [p for p in found if p["metadata"].get("labels", {}).get(label) == "controller"]

    def reshape(self, pod: Thing, *words: str) -> str:
        """Run the command in the controller's container, as ``kubectl exec`` does; its output."""
        settings = client.Configuration()
        config.load_kube_config(
            str(self.namespace.grounds.kubeconfig), client_configuration=settings
        )
        socket = stream.stream(
            client.CoreV1Api(client.ApiClient(settings)).connect_get_namespaced_pod_exec,
            pod["metadata"]["name"],
            self.namespace.name,
            command=[*COMMAND, *words],
            container="controller",
            stdin=False,
            stdout=True,
            stderr=True,
            tty=False,
            _preload_content=False,
        )
        try:
            socket.run_forever(timeout=RUN_S)
            ran = f"`reshape {' '.join(words)}`"
            assert not socket.is_open(), f"{ran} runs for {RUN_S} s"
            end, said = socket.read_channel(ERROR_CHANNEL), str(socket.read_all())
            assert said, f"{ran} prints nothing and ends with {end!r}"
            return said
        finally:
            socket.sock.shutdown()  # its close() leaves the socket open that the server has ended

    def place(self, name: str, script: str, record: Thing) -> str:
        """Put a job's script and record onto the shared volume; the record's path in the pod."""
        folder = self.namespace.shared / "code" / name
        folder.mkdir(parents=True)
        (folder / f"{name}.py").write_text(script)
        record = {"name": name, "code": f"claim:{SHARED}/code/{name}", **record}
        (folder / "job.json").write_text(json.dumps(record))
        return f"{SHARED_PATH}/code/{name}/job.json"

    def close(self) -> None:
        """Take away what the end of the namespace does not."""
        for path in self._of_cluster:
            self.api.delete(path)
        try:
            self.api.delete(self.namespace.path("deployments", "reshape", group=APPS))
        except ApiError:
            return
        eventually("the end of the controller", lambda: not self.pods())

    def home(self) -> Path:
        """The folder of the store's claim."""
        return open_to_all(self.namespace.folder.parent / "controller")

    def bring_code(self) -> None:
        """Claims that are folders of this machine, or folders of the shared claim, filled."""
        space = self.namespace
        for name, folder in self._code.items():
            if isinstance(space.shared, ClaimFolder):
                (space.shared / name).unpack(_archive(folder))
            else:
                space.claim(name, folder, read_only=True)

    def fit(self, deployment: Document) -> None:
        """The image and the code of this cluster; nothing of rights, security or probes."""
        pod: dict[str, Any] = deployment["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        container["image"] = self.namespace.grounds.image
        container["command"] = list(COMMAND)
        path = ":".join(["/libraries", *(f"/source/{name}" for name in SOURCES)])
        container["env"].append({"name": "PYTHONPATH", "value": path})
        container["env"].append({"name": "RESHAPE_SIMULATED_GPUS", "value": "4"})
        # A claim in two volumes of a pod is never mounted: the shared one has the logs here.
        pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] != "storage"]
        for mount in container["volumeMounts"]:
            mount["name"] = SHARED if mount["name"] == "storage" else mount["name"]
        for entry in container["env"]:
            if entry["name"] == "RESHAPE_SIDECAR_URL":
                entry["value"] = f"http://{self.address}:7471"  # there is no DNS here
        for claim in (SHARED, *(self._code if self.namespace.grounds.own else ())):
            pod["volumes"].append({"name": claim, "persistentVolumeClaim": {"claimName": claim}})
        container["volumeMounts"].append({"name": SHARED, "mountPath": SHARED_PATH})
        for name in self._code:
            own = self.namespace.grounds.own
            where = {"name": name} if own else {"name": SHARED, "subPath": name}
            container["volumeMounts"].append({**where, "mountPath": f"/{name}"})


def _archive(folder: Path) -> bytes:
    """A tar archive of it; of the repository what runs."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name in SOURCES if folder == ROOT else sorted(path.name for path in folder.iterdir()):
            archive.add(folder / name, arcname=name)
    return written.getvalue()
