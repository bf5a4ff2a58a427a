"""A namespace for one test, with the restricted profile enforced and its volumes in place.

Does: makes namespace and claims, starts and watches plain pods, takes everything away and waits
until it is gone. Never: leaves a volume behind, or waits for the empty namespace's end. State: the
cluster's; ``shared`` on this machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.kubernetes import claim_folder, image
from tests.kubernetes.api import ApiError
from tests.kubernetes.claim_folder import ClaimFolder
from tests.kubernetes.grounds import Grounds
from tests.support.shared_folder import SharedFolder

PATIENCE_S = 180.0
"""Everything that is waited for takes seconds; a loaded machine gets more."""
POLL_S = 0.2
SHARED, PACKAGES = "shared", "packages"
SHARED_PATH = "/shared"
SIZE = "10Gi"
CORE = "/api/v1"
OPEN_TO_ALL = 0o777
"""Volumes that are folders of a node know no fsGroup."""
PART_OF = {"app.kubernetes.io/part-of": "reshape-tests"}
T = TypeVar("T")
Thing = dict[str, Any]
SECURITY: Thing = {
    "runAsNonRoot": True,
    "runAsUser": image.USER,
    "runAsGroup": image.USER,
    "fsGroup": image.USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def eventually(what: str, look: Callable[[], T | None], within_s: float = PATIENCE_S) -> T:
    """The first thing that ``look`` finds; fails if there is none for long."""
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        found = look()
        if found:
            return found
        time.sleep(POLL_S)
    raise AssertionError(f"not within {within_s:g} s: {what}")


def open_to_all(folder: Path) -> Path:
    """A folder of this machine in which every user may write."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(OPEN_TO_ALL)
    return folder


class Namespace:
    """``shared`` is what is behind the shared claim: ``folder`` of this machine, if the cluster is
    ours, else files that a pod of the namespace serves."""

    def __init__(self, grounds: Grounds, name: str, folder: Path) -> None:
        self.grounds = grounds
        self.api = grounds.api
        self.name = name
        self.folder = folder
        server = f"{self.path('pods', claim_folder.POD)}:{claim_folder.PORT}/proxy"
        self.shared: SharedFolder = folder if grounds.own else ClaimFolder(self.api, server)
        self._volumes: list[str] = []

    def path(self, kind: str, name: str = "", *, group: str = CORE) -> str:
        """Path of a collection, or of one thing in it."""
        collection = f"{group}/namespaces/{self.name}/{kind}"
        return f"{collection}/{name}" if name else collection

    def open(self) -> None:
        labels = {"pod-security.kubernetes.io/enforce": "restricted", **PART_OF}
        metadata = {"name": self.name, "labels": labels}
        self.api.create("/api/v1/namespaces", {"metadata": metadata})
        if self.grounds.packages is not None:
            self.claim(PACKAGES, self.grounds.packages, read_only=True)
        self.claim(SHARED, open_to_all(self.folder))
        account = self.path("serviceaccounts", "default")
        eventually("a service account", lambda: self.api.find(account))
        if self.grounds.own:
            eventually("bound claims", self._all_bound)
        else:
            self._serve_files()

    def make_folder(self, name: str) -> SharedFolder:
        """A folder of the shared claim in which every user may write."""
        made = self.shared / name
        if isinstance(made, Path):
            return open_to_all(made)
        made.mkdir()
        return made

    def claim(
        self, name: str, folder: Path, *, read_only: bool = False, once: bool = False
    ) -> None:
        """A claim; on a cluster of our own it is a folder of this machine, for every node.
        ``once``: it says that one node alone may write."""
        modes = ["ReadWriteOnce" if once else "ReadOnlyMany" if read_only else "ReadWriteMany"]
        request: Thing = {"accessModes": modes, "resources": {"requests": {"storage": SIZE}}}
        if self.grounds.storage_class is None:
            volume = f"{self.name}-{name}"
            self._volumes.append(volume)
            self.api.create("/api/v1/persistentvolumes", self._volume(volume, name, folder, modes))
            request |= {"storageClassName": "", "volumeName": volume}
        else:
            request |= {"storageClassName": self.grounds.storage_class}
        thing = {"metadata": {"name": name}, "spec": request}
        self.api.create(self.path("persistentvolumeclaims"), thing)

    def run(self, name: str, *command: str, node: str | None = None, **more: Any) -> None:
        """Start a pod with this command, with all volumes of the namespace."""
        self.api.create(self.path("pods"), restricted_pod(self.grounds, name, command, node, more))

    def pod(self, name: str) -> Thing:
        found: Thing = self.api.get(self.path("pods", name))
        return found

    def reaches(self, name: str, phase: str, within_s: float = PATIENCE_S) -> Thing:
        """Wait until the pod is in this phase, with an address; the pod."""

        def there() -> Thing | None:
            pod = self.pod(name)
            status = pod["status"]
            if status["phase"] in ("Failed", "Succeeded") and status["phase"] != phase:
                raise AssertionError(f"{name} is {status['phase']}: {status}; {self.logs(name)}")
            return pod if status["phase"] == phase and status.get("podIP") else None

        try:
            return eventually(f"{name} is {phase}", there, within_s)
        except AssertionError as error:
            told = f"{self.pod(name)['status']}; {self.logs(name)}"
            raise AssertionError(f"{error}: {told}") from None

    def logs(self, name: str) -> str:
        try:
            return self.api.text(f"{self.path('pods', name)}/log")
        except ApiError as error:
            return f"no logs: {error}"

    def things(self, kind: str, *, group: str = CORE) -> list[Thing]:
        """Everything of a kind that is in it."""
        found: list[Thing] = self.api.get(self.path(kind, group=group))["items"]
        return found

    def close(self) -> None:
        """Everything in it is gone afterwards; itself it goes in its own time, at least 5 s."""
        self._clear("jobs", "/apis/batch/v1")
        self._clear("pods", CORE)
        self._clear("persistentvolumeclaims", CORE)
        self.api.delete(f"/api/v1/namespaces/{self.name}")
        for volume in self._volumes:
            self.api.delete(f"/api/v1/persistentvolumes/{volume}")

    def _serve_files(self) -> None:
        """Some claims are bound only once a pod wants them."""
        words = ("python3", "-c", claim_folder.PROGRAM, SHARED_PATH, str(claim_folder.PORT))
        user = dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), claim_folder.USER)
        self.run(claim_folder.POD, *words, securityContext=SECURITY | user)
        self.reaches(claim_folder.POD, "Running")

        def answers() -> bool:
            try:
                return self.shared.exists()
            except ApiError:  # not yet
                return False

        eventually("the shared files are served", answers)

    def _clear(self, kind: str, group: str) -> None:
        for thing in self.things(kind, group=group):
            self.api.delete(self.path(kind, thing["metadata"]["name"], group=group), grace_s=1)
        eventually(f"end of {kind}", lambda: not self.things(kind, group=group))

    def _all_bound(self) -> bool:
        claims = self.things("persistentvolumeclaims")
        return all(claim["status"].get("phase") == "Bound" for claim in claims)

    def _volume(self, volume: str, claim: str, folder: Path, modes: list[str]) -> Thing:
        return {
            "metadata": {"name": volume},
            "spec": {
                "capacity": {"storage": SIZE},
                "accessModes": modes,
                "storageClassName": "",
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": str(folder), "type": "Directory"},
                "claimRef": {"namespace": self.name, "name": claim},
            },
        }


def restricted_pod(
    grounds: Grounds, name: str, command: tuple[str, ...], node: str | None, more: Thing
) -> Thing:
    """A pod that the restricted profile accepts; ``more`` comes over its ``spec``."""
    mounts: list[Thing] = [
        {"name": "scratch", "mountPath": "/tmp"},
        {"name": SHARED, "mountPath": SHARED_PATH},
    ]
    volumes: list[Thing] = [
        {"name": "scratch", "emptyDir": {}},
        {"name": SHARED, "persistentVolumeClaim": {"claimName": SHARED}},
    ]
    if grounds.packages is not None:
        mounts.append({"name": PACKAGES, "mountPath": image.PACKAGES, "readOnly": True})
        claim = {"claimName": PACKAGES, "readOnly": True}
        volumes.append({"name": PACKAGES, "persistentVolumeClaim": claim})
    container = {
        "name": "main",
        "image": grounds.image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        "env": [{"name": "HOME", "value": "/tmp"}],
        "volumeMounts": mounts,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    spec: Thing = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "dnsPolicy": "Default",
        "terminationGracePeriodSeconds": 1,
        "securityContext": SECURITY,
        "containers": [container],
        "volumes": volumes,
    }
    if node is not None:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {"metadata": {"name": name}, "spec": spec | more}


@contextmanager
def namespace(grounds: Grounds, name: str, shared: Path) -> Iterator[Namespace]:
    """A namespace that is gone afterwards."""
    made = Namespace(grounds, name, shared)
    try:
        made.open()
        yield made
    finally:
        made.close()
