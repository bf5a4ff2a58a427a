"""Applying the objects of an attempt to a cluster: directly, or by a playbook from a run folder.

Does: create the SideCar's archive, then the Job (suspended), then its Secret (owned by the Job) and
for several workers a Service, and at last unsuspend the Job. In this order nothing is left half
done, and each object may exist already. A Job that a queueing system admits stays suspended, and so
does a Job that another controller has suspended since its launch. A gang has a Job and a Secret
for each of its hosts. The playbook gets the same objects as files in a folder and calls
``apply_from``. No function here waits for a pod.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from reshape_launcher import ansible
from reshape_launcher.kubernetes import manifests, naming
from reshape_launcher.kubernetes.images import CODE_IN_IMAGE, Build
from reshape_launcher.kubernetes.values import (
    UNPROCESSABLE,
    ClusterApi,
    CreatedJob,
    KubernetesError,
    Manifest,
)
from reshape_launcher.spec import ClusterAway, LaunchError, RecordRefused

OBJECTS_FILE = "objects.json"
TARGET_FILE = "target.json"
CONTAINERFILE = "Containerfile"
CONTEXT = "context"
IMAGE_FILE = "image"
FILE_MODE = 0o600
PLAYBOOKS_MAX = 2
"""Number that run at once. Each is a process that takes seconds of a core."""


@dataclass(frozen=True, slots=True)
class AttemptObjects:
    """All objects of an attempt. A Secret gets its owner once the Job exists."""

    config_map: Manifest
    job: Manifest
    secret: Manifest
    service: Manifest | None = None
    """None for a single worker."""
    others: Sequence[Sequence[Manifest]] = ()
    """The Job and the Secret of each further host of a gang."""

    @property
    def by_host(self) -> tuple[tuple[Manifest, Manifest], ...]:
        """Return the Job and the Secret of each host."""
        return ((self.job, self.secret), *((job, secret) for job, secret in self.others))


@dataclass(frozen=True, slots=True)
class ApplyTarget:
    """The cluster and namespace. ``kubeconfig`` None: the service account of this pod."""

    kubeconfig: str | None
    namespace: str


class Applier(Protocol):
    """Applies the objects of an attempt to the cluster."""

    def __call__(self, objects: AttemptObjects, build: Build | None) -> None:
        """Apply them, after the build of an image if one is needed. Blocking; may be repeated.

        Raises LaunchError.
        """


def apply(cluster: ClusterApi, objects: AttemptObjects) -> None:
    """Create the objects that do not exist yet. Raises KubernetesError; a repeat continues.

    No Job of a gang is released before the objects of all its hosts exist.
    """
    cluster.create_config_map(objects.config_map)
    made = [(job, cluster.create_job(job)) for job, _ in objects.by_host]
    _refuse_admission(cluster, made)
    service = objects.service
    for (job, created), (_, secret) in zip(made, objects.by_host, strict=True):
        cluster.create_secret(manifests.owned(secret, job, created.uid))
        service = service and manifests.owned(service, job, created.uid)
    if service is not None:
        cluster.create_service(service)
    for job, created in made:
        if not created.released:
            release = manifests.release(admitted_by=created.queue)
            cluster.patch_job(job["metadata"]["name"], release)


def _refuse_admission(cluster: ClusterApi, made: list[tuple[Manifest, CreatedJob]]) -> None:
    """Raise KubernetesError if a queueing system admits each Job of a gang for itself.

    Then nothing of the gang stays: half a gang that is admitted would hold what it cannot use.
    """
    queue = next((created.queue for _, created in made if created.queue), "")
    if len(made) == 1 or not queue:
        return
    for job, _ in made:
        cluster.delete_job(job["metadata"]["name"])
    refused = gang_in_queue(queue)
    raise KubernetesError(refused.field, UNPROCESSABLE, f"{refused.what}; {refused.remedy}")


def gang_in_queue(queue: str) -> RecordRefused:
    """Return why no gang is launched under a queueing system."""
    what = f"the queue {queue} admits each Job by itself, and a gang has a Job for each host"
    remedy = f"submit with `span: never`, or have no label {naming.QUEUE} on the controller's Jobs"
    return RecordRefused("span", what, remedy)


class DirectApplier:
    """Applies by the API client, without Ansible."""

    def __init__(self, cluster: ClusterApi) -> None:
        self._cluster = cluster

    def __call__(self, objects: AttemptObjects, build: Build | None) -> None:
        if build is not None:
            raise LaunchError(
                "only the playbook builds images; set `image`, or use --launch-by ansible"
            )
        try:
            apply(self._cluster, objects)
        except KubernetesError as trouble:
            if trouble.away:
                raise ClusterAway(str(trouble)) from trouble
            raise LaunchError(str(trouble), retryable=not trouble.lasting) from trouble


class PlaybookApplier:
    """Builds and pushes the image and applies by Ansible. ``root`` holds the artifacts."""

    def __init__(self, root: Path, target: ApplyTarget, playbook: Path | None = None) -> None:
        self._root = root
        self._target = target
        self._playbook = playbook
        self._slots = threading.BoundedSemaphore(PLAYBOOKS_MAX)

    def __call__(self, objects: AttemptObjects, build: Build | None) -> None:
        ident = uuid.uuid4().hex
        try:
            with (
                self._slots,
                run_folder(self._root, ident, objects, self._target, build) as folder,
            ):
                ansible.run(self._root, folder, ident, self._playbook)
        except ansible.PlaybookFailed as error:
            if error.away:
                raise ClusterAway(str(error)) from error
            raise LaunchError(str(error), retryable=not error.lasting) from error
        except OSError as error:
            raise LaunchError(f"{self._root}: {error.strerror}", retryable=True) from error


@contextmanager
def run_folder(
    root: Path, ident: str, objects: AttemptObjects, target: ApplyTarget, build: Build | None
) -> Iterator[Path]:
    """Write the folder of the run ``ident``, and remove it afterwards. Raises OSError."""
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
    """Apply the objects in a run folder. Raises KubernetesError, OSError."""
    from reshape_launcher.kubernetes.api import CannotConnect, connect

    objects = AttemptObjects(**json.loads((folder / OBJECTS_FILE).read_text(encoding="utf-8")))
    target = ApplyTarget(**json.loads((folder / TARGET_FILE).read_text(encoding="utf-8")))
    kubeconfig = None if target.kubeconfig is None else Path(target.kubeconfig)
    try:
        cluster = connect(kubeconfig, target.namespace)
    except CannotConnect as error:
        raise KubernetesError("the cluster cannot be used", 0, str(error)) from None
    try:
        apply(cluster, objects)
    finally:
        cluster.close()


def _write(path: Path, text: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with open(os.open(path, flags, FILE_MODE), "w", encoding="utf-8") as file:
        file.write(text)
