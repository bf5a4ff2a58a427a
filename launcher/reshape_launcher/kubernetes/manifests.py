"""The objects of one attempt as data: a Job that never replaces its pod, its Secret, the archive.

Does: pure functions from a launch to what the API server gets. Never: writes text that is parsed
again, or puts a text of a user anywhere but into the Secret. State: none.

One Job per attempt: ``backoffLimit`` 0 and ``podReplacementPolicy`` Failed, so that a pod that
vanished is the end of its Job and only the controller launches another.
"""

from __future__ import annotations

import base64

from reshape_launcher.kubernetes import naming, pod
from reshape_launcher.kubernetes.settings import PodSettings
from reshape_launcher.kubernetes.sidecar_archive import Archive
from reshape_launcher.kubernetes.values import Manifest
from reshape_launcher.spec import worker_token
from reshape_sidecar import codec
from reshape_sidecar.agent.spec import SPEC_FILE, TOKEN_FILE, AttemptSpec

TRUTH_FILE = "device-truth.json"
END_NOW_S = 1


def job(attempt: pod.Attempt) -> Manifest:
    """The attempt's Job, suspended until its Secret is there. Raises LaunchError."""
    spec, settings = attempt.spec, attempt.settings
    version = attempt.archive.name.rpartition("-")[2]
    labels = naming.labels(settings.controller, spec.job, spec.attempt, version)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": attempt.name,
            "namespace": settings.namespace,
            "labels": labels,
            "annotations": {naming.JOB: spec.job},
        },
        "spec": {
            "suspend": True,
            "backoffLimit": 0,
            "completions": spec.workers,
            "parallelism": spec.workers,
            **({"completionMode": "Indexed"} if spec.workers > 1 else {}),
            "podReplacementPolicy": "Failed",
            "ttlSecondsAfterFinished": settings.finished_ttl_s,
            "template": pod.template(attempt, labels),
        },
    }


def secret(attempt: pod.Attempt, token: str, truth: str | None) -> Manifest:
    """The attempt's files; ``owned`` gives it to its Job."""
    settings = attempt.settings
    files = {SPEC_FILE: codec.dumps(_told(attempt, truth)), **_tokens(attempt.spec.workers, token)}
    if truth is not None:
        files[TRUTH_FILE] = truth
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "immutable": True,
        "metadata": {
            "name": attempt.name,
            "namespace": settings.namespace,
            "labels": naming.ours(settings.controller),
        },
        "data": {name: _base64(text.encode()) for name, text in files.items()},
    }


def service(attempt: pod.Attempt) -> Manifest | None:
    """The headless Service of several workers, so that their pods have names where there is a name
    service. Reshape itself needs none: workers are told each other's addresses."""
    if attempt.spec.workers == 1:
        return None
    settings = attempt.settings
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": attempt.service,
            "namespace": settings.namespace,
            "labels": naming.ours(settings.controller),
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {naming.JOB_NAME_LABEL: attempt.name},
        },
    }


def owned(thing: Manifest, job: Manifest, uid: str) -> Manifest:
    """The Secret or the Service as the Job's own: gone with it."""
    name = job["metadata"]["name"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}
    return {**thing, "metadata": {**thing["metadata"], "ownerReferences": [owner]}}


def config_map(archive: Archive, settings: PodSettings) -> Manifest:
    """The SideCar's archive under a name of its content: shared by all attempts, never changed."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "immutable": True,
        "metadata": {
            "name": archive.name,
            "namespace": settings.namespace,
            "labels": {naming.MANAGED_BY: naming.PROGRAM},
        },
        "binaryData": {pod.ARCHIVE_KEY: _base64(archive.data)},
    }


def go() -> Manifest:
    """Change of a Job: its pod may be made now."""
    return {"spec": {"suspend": False}}


def end(reason: str, *, lasting: bool = False) -> Manifest:
    """Change of a Job: it is over, and its pod is ended. The Job stays as the sentinel of that.

    ``lasting``: another attempt would end in the same way.
    """
    said = {naming.REASON: reason} | ({naming.LASTING: "true"} if lasting else {})
    return {
        "metadata": {"annotations": said},
        "spec": {"activeDeadlineSeconds": END_NOW_S},
    }


def _tokens(workers: int, token: str) -> dict[str, str]:
    """One file, or one for each of several workers."""
    if workers == 1:
        return {TOKEN_FILE: token}
    return {f"{TOKEN_FILE}-{number}": worker_token(token, number) for number in range(workers)}


def _told(attempt: pod.Attempt, truth: str | None) -> AttemptSpec:
    """The SideCar's part of the launch, with folders as the pod has them."""
    places = attempt.places
    return attempt.spec.told(
        code=places.code,
        checkpoints=places.checkpoints,
        dataset=places.dataset,
        device_truth=f"{pod.ATTEMPT_FOLDER}/{TRUTH_FILE}" if truth is not None else None,
        python=attempt.python,
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
