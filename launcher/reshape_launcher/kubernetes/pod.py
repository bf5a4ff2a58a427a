"""The pod of one attempt as data: what runs in it, what it mounts, and what it may never do.

Does: pure functions from a launch to a pod template. Nothing of a job record is in it but its
image, its amounts, its interpreter and the names of its claims, each checked by a pattern; command,
environment and paths go into the Secret. Never: asks for what the restricted pod security profile
refuses, mounts a service account, a folder of the node or another job's, or sets a node by name.
State: none.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from reshape_launcher.kubernetes import images, naming
from reshape_launcher.kubernetes.pod_mounts import LOGS, OWN_NUMBER, Mounts
from reshape_launcher.kubernetes.settings import ClaimMount, PodSettings
from reshape_launcher.kubernetes.sidecar_archive import Archive
from reshape_launcher.kubernetes.values import Manifest
from reshape_launcher.spec import LaunchSpec
from reshape_sidecar import limits

HOME = "/reshape"
ATTEMPT_FOLDER = f"{HOME}/attempt"
PROGRAMS = f"{HOME}/sidecar/reshape_sidecar"
ARCHIVE_KEY = "sidecar.pyz"
ARCHIVE_FOLDER = "/reshape-archive"
SECRET_FOLDER = "/reshape-secret"
INTERPRETER = f"{HOME}/python"
"""Link to the interpreter that the SideCar runs with; made by the first program in the pod."""
CONTAINER = "training"
PLACER = "place-sidecar"
PYTHON = "python3"
"""Runs the SideCar where the record's command names no Python."""
END_MARGIN_S = 15.0
"""Deletion of the pod to SIGKILL, beyond what init is given to save and to sweep."""
SHARED_MEMORY_BYTES = 1 << 30
SIDECAR_BYTES = 1 << 30
"""SideCar, its state and the log files of an attempt."""
CPUS_ASKED = 0.1
MEMORY_ASKED_BYTES = 256 << 20
"""Asked of the scheduler for a job whose record names no amounts."""
KEEP_ON_NODE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""A silent node loses no pod to Kubernetes: only the controller decides on a relaunch."""
NO_RIGHTS: Manifest = {
    "allowPrivilegeEscalation": False,
    "privileged": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
"""Of every container."""
_PYTHON = re.compile(r"(/([A-Za-z0-9_.+-]+/)*)?python(\d+(\.\d+)?)?\Z")


@dataclass(frozen=True, slots=True)
class Attempt:
    """A launch, and everything that a pod is made of."""

    spec: LaunchSpec
    settings: PodSettings
    places: Mounts
    archive: Archive
    environment: tuple[tuple[str, str], ...]
    """What the container's runtime is told of devices."""
    runtime_class: str | None = None

    @property
    def name(self) -> str:
        return naming.object_name(self.settings.controller, self.spec.job, self.spec.attempt)

    @property
    def service(self) -> str:
        """Name of the Service of several workers; one that begins with a letter."""
        return f"workers-{self.name}"

    @property
    def image(self) -> str:
        """The record's image, or the operator's. Raises RecordRefused."""
        return images.chosen(self.spec, self.settings)

    @property
    def python(self) -> str:
        """The interpreter of the record's command, which the SideCar uses as well."""
        word = self.spec.command[0] if self.spec.command else ""
        return word if word != "python" and _PYTHON.match(word) else PYTHON


def template(attempt: Attempt, labels: dict[str, str]) -> Manifest:
    """The pod template of the attempt's Job. Raises LaunchError."""
    several = {"subdomain": attempt.service} if attempt.spec.workers > 1 else {}
    return {
        "metadata": {"labels": labels, "annotations": {naming.JOB: attempt.spec.job}},
        "spec": {
            **several,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": _grace_s(attempt.spec),
            "affinity": only_on(attempt.spec.host),
            "tolerations": tolerations(attempt.settings),
            "securityContext": security(attempt.settings),
            **runtime(attempt.runtime_class),
            "initContainers": [_placer(attempt)],
            "containers": [_training(attempt)],
            "volumes": _volumes(attempt),
        },
    }


def runtime(name: str | None) -> Manifest:
    """The runtime that starts a pod's containers, where it is not the node's own."""
    return {} if name is None else {"runtimeClassName": name}


def security(settings: PodSettings) -> Manifest:
    """What all processes of a pod are."""
    user = settings.user_id
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def gpus() -> tuple[str, ...]:
    """Command that says, inside the container, which GPUs its node has and what they hold."""
    return (INTERPRETER, "-I", "-S", f"{PROGRAMS}/probe.py")


def look(job: str, attempt: int, generation: int) -> tuple[str, ...]:
    """Command that says, inside the container, what of an attempt is alive up to a generation."""
    return (
        *(INTERPRETER, "-I", "-S", f"{PROGRAMS}/init/look.py", "--folder", ATTEMPT_FOLDER),
        *("--job", job, "--attempt", str(attempt), "--generation", str(generation)),
    )


def _placer(attempt: Attempt) -> Manifest:
    """Puts the SideCar in, with the job's own image: no other image is needed."""
    archive = f"{ARCHIVE_FOLDER}/{ARCHIVE_KEY}"
    return {
        **_contained(attempt, PLACER),
        "command": [attempt.python, "-I", "-S", archive, archive, SECRET_FOLDER, HOME],
        "env": [{"name": "HOME", "value": "/tmp"}],
        "volumeMounts": [
            {"name": "reshape", "mountPath": HOME},
            {"name": "archive", "mountPath": ARCHIVE_FOLDER, "readOnly": True},
            {"name": "secret", "mountPath": SECRET_FOLDER, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
            *_claim_mounts(attempt, attempt.settings.mounts),
        ],
    }


def _training(attempt: Attempt) -> Manifest:
    spec, places = attempt.spec, attempt.places
    own = [{"name": "code", "mountPath": places.code}] if places.own_code else []
    # An image has no user of this number: without a name, what asks for its user's fails.
    named = (("HOME", "/tmp"), ("USER", "reshape"))
    environment = (*named, *attempt.environment)
    return {
        **_contained(attempt, CONTAINER),
        "command": [
            *(attempt.python, "-I", "-S", f"{PROGRAMS}/init/__main__.py"),
            *("--folder", ATTEMPT_FOLDER, "--job", spec.job, "--attempt", str(spec.attempt)),
            *("--grace-s", f"{spec.save_s:g}", "--"),
            *(attempt.python, "-I", "-S", f"{PROGRAMS}/agent/__main__.py"),
            *("--folder", ATTEMPT_FOLDER),
        ],
        "env": [{"name": name, "value": value} for name, value in environment],
        "volumeMounts": [
            {"name": "reshape", "mountPath": HOME},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "shared-memory", "mountPath": "/dev/shm"},
            *own,
            *_claim_mounts(attempt, (*attempt.settings.mounts, *places.mounts)),
        ],
    }


def _contained(attempt: Attempt, name: str) -> Manifest:
    """What both containers have in common: image, limits, and no right at all."""
    return {
        "name": name,
        "image": attempt.image,
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": _resources(attempt),
        "securityContext": dict(NO_RIGHTS),
    }


def _resources(attempt: Attempt) -> Manifest:
    """Always limits; what the record names is also what the scheduler keeps free for it."""
    spec, settings = attempt.spec, attempt.settings
    cpus = settings.cpus if spec.cpus is None else spec.cpus
    memory = settings.memory_bytes if spec.memory_bytes is None else spec.memory_bytes
    cpus_asked = min(CPUS_ASKED, cpus) if spec.cpus is None else cpus
    memory_asked = min(MEMORY_ASKED_BYTES, memory) if spec.memory_bytes is None else memory
    disk = str(settings.scratch_bytes)
    return {
        "limits": {"cpu": _cpu(cpus), "memory": str(memory), "ephemeral-storage": disk},
        "requests": {
            "cpu": _cpu(cpus_asked),
            "memory": str(memory_asked),
            "ephemeral-storage": "0",
        },
    }


def _volumes(attempt: Attempt) -> list[Manifest]:
    scratch = str(attempt.settings.scratch_bytes)
    memory = {"medium": "Memory", "sizeLimit": str(SHARED_MEMORY_BYTES)}
    volumes: list[Manifest] = [
        {"name": "reshape", "emptyDir": {"sizeLimit": str(SIDECAR_BYTES)}},
        {"name": "tmp", "emptyDir": {"sizeLimit": scratch}},
        {"name": "shared-memory", "emptyDir": memory},
        {"name": "archive", "configMap": {"name": attempt.archive.name}},
        {"name": "secret", "secret": {"secretName": attempt.name, "defaultMode": 0o440}},
    ]
    if attempt.places.own_code:
        volumes.append({"name": "code", "emptyDir": {"sizeLimit": scratch}})
    for number, claim in enumerate(_claims(attempt)):
        source = {"claimName": claim}
        volumes.append({"name": f"claim-{number}", "persistentVolumeClaim": source})
    return volumes


def _claims(attempt: Attempt) -> list[str]:
    """Each claim once, in a fixed order."""
    return sorted({mount.claim for mount in (*attempt.settings.mounts, *attempt.places.mounts)})


def _claim_mounts(attempt: Attempt, mounts: tuple[ClaimMount, ...]) -> list[Manifest]:
    names = {claim: f"claim-{number}" for number, claim in enumerate(_claims(attempt))}
    return [
        {
            "name": names[mount.claim],
            "mountPath": mount.path,
            "readOnly": mount.read_only,
            **_part_of(mount),
        }
        for mount in mounts
    ]


def _part_of(mount: ClaimMount) -> Manifest:
    """The folder of the claim. Only what we say ourselves is read for a worker's number."""
    if not mount.sub_path:
        return {}
    expanded = mount.path == LOGS and OWN_NUMBER in mount.sub_path
    return {"subPathExpr" if expanded else "subPath": mount.sub_path}


def only_on(node: str) -> Manifest:
    """The scheduler may take this node alone, and still checks that it has room."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def tolerations(settings: PodSettings) -> list[Manifest]:
    stay = [{"key": key, "operator": "Exists", "effect": "NoExecute"} for key in KEEP_ON_NODE]
    return stay + [{"key": key, "operator": "Exists"} for key in settings.tolerated_taints]


def _grace_s(spec: LaunchSpec) -> int:
    """Longer than init takes to end when nobody but Kubernetes ends the pod."""
    return math.ceil(spec.save_s + limits.LEFTOVER_GRACE_S + limits.AGENT_END_S + END_MARGIN_S)


def _cpu(cpus: float) -> str:
    return f"{max(1, round(cpus * 1000))}m"
