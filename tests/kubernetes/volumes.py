"""A provisioner of volumes: each claim of one storage class becomes a folder that every node sees.

    python -m tests.kubernetes.volumes        (as a daemon of a cluster that is up)

Does: what a cluster's own provisioner does, for clusters that stand for somebody's: makes a volume
for each claim, and removes it once the claim is gone. Never: serves another class. State: the API
server's, and the folders.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from tests.kubernetes import control_plane, layout
from tests.kubernetes.api import Api, ApiError
from tests.kubernetes.namespace import open_to_all

CLASS = "shared"
PROVISIONER = "folders.test/on-every-node"
CLAIMS, VOLUMES = "/api/v1/persistentvolumeclaims", "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
FOLDER = layout.ROOT / "volumes"
POLL_S = 0.3


def make_class(api: Api) -> None:
    """Offer the storage class."""
    api.create(CLASSES, {"metadata": {"name": CLASS}, "provisioner": PROVISIONER})


def serve(api: Api, root: Path) -> None:
    """One look: a volume for each claim that waits, none for those that are gone."""
    volumes = {volume["metadata"]["name"]: volume for volume in api.get(VOLUMES)["items"]}
    for claim in api.get(CLAIMS)["items"]:
        name = f"pvc-{claim['metadata']['uid']}"
        if claim["spec"].get("storageClassName") == CLASS and name not in volumes:
            folder = open_to_all(root / name)
            api.create(VOLUMES, _volume(name, claim, folder))
    for name, volume in volumes.items():
        ours = volume["spec"].get("storageClassName") == CLASS
        if ours and volume["status"].get("phase") == "Released":
            api.delete(f"{VOLUMES}/{name}")
            shutil.rmtree(root / name, ignore_errors=True)


def _volume(name: str, claim: dict[str, Any], folder: Path) -> dict[str, Any]:
    who, asked = claim["metadata"], claim["spec"]
    provisioned = {"pv.kubernetes.io/provisioned-by": PROVISIONER}
    return {
        "metadata": {"name": name, "annotations": provisioned},
        "spec": {
            "capacity": asked["resources"]["requests"],
            "accessModes": asked["accessModes"],
            "storageClassName": CLASS,
            "persistentVolumeReclaimPolicy": "Delete",
            "hostPath": {"path": str(folder), "type": "Directory"},
            "claimRef": {key: who[key] for key in ("namespace", "name", "uid")},
        },
    }


def main() -> None:
    """Serve until killed; an API server that is away is asked again."""
    while True:
        try:
            serve(Api.of(control_plane.ADMIN), FOLDER)
        except ApiError as error:
            print(error, flush=True)
        time.sleep(POLL_S)


if __name__ == "__main__":
    main()
