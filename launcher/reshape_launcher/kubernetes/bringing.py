"""The two ways in which an attempt's objects get into a cluster: by the playbook, or directly.

Does: both bring the same objects by the same code; only the playbook builds images. Never: decides
what is brought. State: how many playbooks run.
"""

from __future__ import annotations

import threading
import uuid
from pathlib import Path
from typing import Protocol

from reshape_launcher import ansible
from reshape_launcher.kubernetes.applying import Objects, apply
from reshape_launcher.kubernetes.cluster import ApiTrouble, Cluster
from reshape_launcher.kubernetes.images import Build
from reshape_launcher.kubernetes.run_folder import Target, run_folder
from reshape_launcher.spec import ClusterAway, LaunchError

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
            raise LaunchError("the job's image has to be built, and only the playbook does that")
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
