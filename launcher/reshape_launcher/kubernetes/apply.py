"""Bringing an attempt's objects into the cluster, in the one order that leaves nothing half done.

Does: the SideCar's archive, then the Job (suspended), then its Secret (owned by the Job; of several
workers a Service as well), then the word go; each may be there already. Never: waits for a pod.
State: none.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from reshape_launcher import ansible
from reshape_launcher.kubernetes import manifests
from reshape_launcher.kubernetes.images import CODE_IN_IMAGE, Build
from reshape_launcher.kubernetes.values import ApiTrouble, Cluster, Manifest
from reshape_launcher.spec import ClusterAway, LaunchError

OBJECTS_FILE = "objects.json"
TARGET_FILE = "target.json"
CONTAINERFILE = "Containerfile"
CONTEXT = "context"
IMAGE_FILE = "image"
FILE_MODE = 0o600


@dataclass(frozen=True, slots=True)
class Target:
    """Where the objects go. ``kubeconfig`` None: the service account of this pod."""

    kubeconfig: str | None
    namespace: str


@contextmanager
def run_folder(
    root: Path, ident: str, objects: Objects, target: Target, build: Build | None
) -> Iterator[Path]:
    """The folder of the run ``ident``, gone afterwards. Raises OSError."""
    folder = root / f"run-{ident}"
    folder.mkdir(mode=0o700, parents=True)
    try:
        _write(folder / OBJECTS_FILE, json.dumps(asdict(objects)))
        _write(folder / TARGET_FILE, json.dumps(asdict(target)))
        if build is not None:
            # The link keeps the folder's name out of every variable and command line.
            (folder / CONTEXT).symlink_to(build.code, target_is_directory=True)
            _write(folder / IMAGE_FILE, build.image)
            text = f"FROM {build.base}\nCOPY --chmod=755 . {CODE_IN_IMAGE}\n"
            _write(folder / CONTAINERFILE, text)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def apply_from(folder: Path) -> None:
    """Bring what is in the folder into the cluster. Raises ApiTrouble, OSError."""
    from reshape_launcher.kubernetes.api import CannotConnect, connect

    objects = Objects(**json.loads((folder / OBJECTS_FILE).read_text(encoding="utf-8")))
    target = Target(**json.loads((folder / TARGET_FILE).read_text(encoding="utf-8")))
    kubeconfig = None if target.kubeconfig is None else Path(target.kubeconfig)
    try:
        cluster = connect(kubeconfig, target.namespace)
    except CannotConnect as error:
        raise ApiTrouble("the cluster cannot be used", 0, str(error)) from None
    try:
        apply(cluster, objects)
    finally:
        cluster.close()


def _write(path: Path, text: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with open(os.open(path, flags, FILE_MODE), "w", encoding="utf-8") as file:
        file.write(text)


PLAYBOOKS_MAX = 2
"""At once: each is a process that takes seconds of a core."""


class Bring(Protocol):
    """Brings an attempt into the cluster."""

    def __call__(self, objects: Objects, build: Build | None) -> None:
        """Blocking; may be repeated. Raises LaunchError."""


class Directly:
    """By the client, without Ansible."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __call__(self, objects: Objects, build: Build | None) -> None:
        if build is not None:
            raise LaunchError(
                "only the playbook builds images; set `image`, or use --launch-by ansible"
            )
        try:
            apply(self._cluster, objects)
        except ApiTrouble as trouble:
            if trouble.away:
                raise ClusterAway(str(trouble)) from trouble
            raise LaunchError(str(trouble), retryable=not trouble.lasting) from trouble


class ByPlaybook:
    """By Ansible: build the image, push it, launch the manifests. ``root`` keeps the artifacts."""

    def __init__(self, root: Path, target: Target, playbook: Path | None = None) -> None:
        self._root = root
        self._target = target
        self._playbook = playbook
        self._room = threading.BoundedSemaphore(PLAYBOOKS_MAX)

    def __call__(self, objects: Objects, build: Build | None) -> None:
        ident = uuid.uuid4().hex
        try:
            with (
                self._room,
                run_folder(self._root, ident, objects, self._target, build) as folder,
            ):
                ansible.run(self._root, folder, ident, self._playbook)
        except ansible.PlaybookFailed as error:
            if error.away:
                raise ClusterAway(str(error)) from error
            raise LaunchError(str(error), retryable=not error.lasting) from error
        except OSError as error:
            raise LaunchError(f"{self._root}: {error.strerror}", retryable=True) from error


@dataclass(frozen=True, slots=True)
class Objects:
    """Everything of an attempt. The Secret's owner is known when the Job is there."""

    config_map: Manifest
    job: Manifest
    secret: Manifest
    service: Manifest | None = None
    """Of several workers."""


def apply(cluster: Cluster, objects: Objects) -> None:
    """Make what is not there yet. Raises ApiTrouble; doing it again goes on where it broke off."""
    cluster.create_config_map(objects.config_map)
    uid = cluster.create_job(objects.job)
    cluster.create_secret(manifests.owned(objects.secret, objects.job, uid))
    if objects.service is not None:
        cluster.create_service(manifests.owned(objects.service, objects.job, uid))
    cluster.patch_job(objects.job["metadata"]["name"], manifests.go())
