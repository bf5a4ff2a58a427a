"""The objects of one attempt as data: a Job that never replaces its pod, its Secret, the archive.

A gang has a Job and a Secret for each of its hosts (``pod.Attempt``), and one Service.

Does: convert a launch to the documents for the API server. Pure. Never: put a user's text anywhere
but into the Secret.

An attempt has a Job of its own with ``backoffLimit`` 0 and ``podReplacementPolicy`` Failed: if its
pod vanishes, the Job ends, and only the controller launches another.
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
_TAKEN_AWAY: Manifest = {
    "rules": [
        {
            "action": "FailJob",
            "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
        }
    ]
}
"""The rule by which a failed Job tells that the cluster took its pod away, also once the pod is
deleted (``api_objects``). No rule names exit codes: the pod of a Job that another controller
suspends has them too, and its Job has to live on."""


def job(attempt: pod.Attempt) -> Manifest:
    """Return the attempt's Job, suspended until its Secret exists. Raises LaunchError."""
    spec, settings = attempt.spec, attempt.settings
    version = attempt.archive.name.rpartition("-")[2]
    labels = naming.labels(settings.controller, spec.job, spec.attempt, version)
    labels |= naming.cost_labels(spec.user, spec.name, spec.job_type)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": attempt.name,
            "namespace": settings.namespace,
            "labels": {**dict(settings.labels), **labels},
            "annotations": {**dict(settings.annotations), **attempt.annotations},
        },
        "spec": {
            "suspend": True,
            "backoffLimit": 0,
            "podFailurePolicy": _TAKEN_AWAY,
            "completions": len(attempt.workers),
            "parallelism": len(attempt.workers),
            **({"completionMode": "Indexed"} if spec.workers > 1 else {}),
            "podReplacementPolicy": "Failed",
            "ttlSecondsAfterFinished": settings.finished_ttl_s,
            "template": pod.template(attempt, labels),
        },
    }


def secret(attempt: pod.Attempt, token: str, device_truth: str | None) -> Manifest:
    """Return the Secret with the attempt's files; ``owned`` gives it to the Job."""
    settings = attempt.settings
    files = {
        SPEC_FILE: codec.dumps(_attempt_spec(attempt, device_truth)),
        **_tokens(attempt, token),
    }
    if device_truth is not None:
        files[TRUTH_FILE] = device_truth
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "immutable": True,
        "metadata": {
            "name": attempt.name,
            "namespace": settings.namespace,
            "labels": {**dict(settings.labels), **naming.ours(settings.controller)},
        },
        "data": {name: _base64(text.encode()) for name, text in files.items()},
    }


def service(attempt: pod.Attempt) -> Manifest | None:
    """Return the headless Service of several workers; None for a single worker.

    It gives their pods names in clusters with a name service. Reshape itself does not need it, for
    the controller tells workers each other's addresses.
    """
    if attempt.spec.workers == 1:
        return None
    settings, spec = attempt.settings, attempt.spec
    pods = {naming.JOB_NAME_LABEL: attempt.name}
    if spec.shares:
        pods = naming.attempt_labels(settings.controller, spec.job, spec.attempt)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": attempt.service,
            "namespace": settings.namespace,
            "labels": {**dict(settings.labels), **naming.ours(settings.controller)},
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": pods,
        },
    }


def owned(thing: Manifest, job: Manifest, uid: str) -> Manifest:
    """Return the Secret or the Service with the Job as a further owner: it ends with the last."""
    name = job["metadata"]["name"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}
    owners = [*thing["metadata"].get("ownerReferences", []), owner]
    return {**thing, "metadata": {**thing["metadata"], "ownerReferences": owners}}


def config_map(archive: Archive, settings: PodSettings) -> Manifest:
    """Return the SideCar's archive, named by its content; attempts share it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "immutable": True,
        "metadata": {
            "name": archive.name,
            "namespace": settings.namespace,
            "labels": {**dict(settings.labels), naming.MANAGED_BY: naming.PROGRAM},
        },
        "binaryData": {pod.ARCHIVE_KEY: _base64(archive.data)},
    }


def release(*, admitted_by: str = "") -> Manifest:
    """Return the change of a Job whose launch is complete. It lets Kubernetes create the pods,
    unless a queueing system admits the Job."""
    spec = {} if admitted_by else {"suspend": False}
    return {"metadata": {"annotations": {naming.RELEASED: "true"}}, "spec": spec}


def end(reason: str, *, lasting: bool = False) -> Manifest:
    """Return the change of a Job that ends it and its pod. The Job stays as the sentinel of its
    end.

    ``lasting``: another attempt would end in the same way.
    """
    annotations = {naming.REASON: reason} | ({naming.LASTING: "true"} if lasting else {})
    return {
        "metadata": {"annotations": annotations},
        "spec": {"activeDeadlineSeconds": END_NOW_S},
    }


def _tokens(attempt: pod.Attempt, token: str) -> dict[str, str]:
    """Return one token file, or one for each of several workers on this host."""
    if attempt.spec.workers == 1:
        return {TOKEN_FILE: token}
    return {f"{TOKEN_FILE}-{number}": worker_token(token, number) for number in attempt.workers}


def _attempt_spec(attempt: pod.Attempt, device_truth: str | None) -> AttemptSpec:
    """Return the SideCar's part of the launch, with the folders of the pod."""
    mounts = attempt.mounts
    return attempt.spec.sidecar_spec(
        code=mounts.code,
        checkpoints=mounts.checkpoints,
        dataset=mounts.dataset,
        work=mounts.work,
        device_truth=f"{pod.ATTEMPT_FOLDER}/{TRUTH_FILE}" if device_truth is not None else None,
        python=attempt.python,
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
