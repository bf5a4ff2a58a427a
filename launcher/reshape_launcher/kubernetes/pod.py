"""The pod of one attempt as data: what runs in it, what it mounts, and what it may never do.

Does: convert a launch to a pod template. Of a job record only the image, the amounts, the
interpreter, the names of claims, and name, user and type as labels are in it, each checked by a
pattern; command, environment and paths go into the Secret. Never: request what the restricted pod
security profile refuses, mount a service account, a folder of the node or of another job, or bypass
the scheduler by naming the node.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from reshape_launcher.kubernetes import images, naming
from reshape_launcher.kubernetes.pod_mounts import LOGS, WORKER_INDEX, Mounts
from reshape_launcher.kubernetes.settings import ClaimMount, PodSettings
from reshape_launcher.kubernetes.sidecar_archive import Archive
from reshape_launcher.kubernetes.values import Manifest, Node, Taint
from reshape_launcher.spec import LaunchSpec
from reshape_sidecar import limits
from reshape_sidecar.init.values import FAILED_FOR_GOOD, UNFINISHED

HOME = "/reshape"
ATTEMPT_FOLDER = f"{HOME}/attempt"
PROGRAMS = f"{HOME}/sidecar/reshape_sidecar"
ARCHIVE_KEY = "sidecar.pyz"
ARCHIVE_FOLDER = "/reshape-archive"
SECRET_FOLDER = "/reshape-secret"
INTERPRETER = f"{HOME}/python"
"""Link to the SideCar's interpreter; the first program in the pod creates it."""
CONTAINER = "training"
PLACER = "place-sidecar"
IN_ORDER_CODES = (FAILED_FOR_GOOD, UNFINISHED)
"""Exit codes beside 0 of a container that ended in order, with no process left."""
PYTHON = "python3"
"""The interpreter of the SideCar if the record's command names no Python."""
END_MARGIN_S = 15.0
"""Time from the pod's deletion to SIGKILL beyond what init needs to save and to sweep."""
SIDECAR_BYTES = 1 << 30
"""Disk limit for the SideCar, its state and the log files of an attempt."""
CPU_REQUEST = 0.1
MEMORY_REQUEST_BYTES = 256 << 20
"""Requests to the scheduler for a job whose record names no amounts."""
IN_USE = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
"""Annotations by which autoscalers leave the pod's node alone. A pod requests little CPU and no
GPU, so a node that trains looks empty; a pod exists for as long as its job has GPUs."""
REFUSING = ("NoSchedule", "NoExecute")
"""Effects of taints for which the scheduler puts no pod onto a node."""
CORDON = "node.kubernetes.io/unschedulable"
"""Taint of a cordoned node."""
KEEP_ON_NODE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Taints for which Kubernetes must not delete pods: only the controller decides on a relaunch."""
NO_RIGHTS: Manifest = {
    "allowPrivilegeEscalation": False,
    "privileged": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
"""Security context of every container."""
_PYTHON = re.compile(r"(/([A-Za-z0-9_.+-]+/)*)?python(\d+(\.\d+)?)?\Z")


@dataclass(frozen=True, slots=True)
class Attempt:
    """A launch and all else that determines its pod. A gang has one of these for each host."""

    spec: LaunchSpec
    """On a host of a gang: that of the first worker there (``LaunchSpec.for_worker``)."""
    settings: PodSettings
    mounts: Mounts
    archive: Archive
    environment: tuple[tuple[str, str], ...]
    """Variables for the container's runtime that select devices."""
    runtime_class: str | None = None

    @property
    def name(self) -> str:
        spec = self.spec
        host = spec.hosts.index(spec.host) if spec.shares else None
        return naming.object_name(self.settings.controller, spec.job, spec.attempt, host)

    @property
    def service(self) -> str:
        """Return the name of the Service of several workers; it begins with a letter."""
        whole = naming.object_name(self.settings.controller, self.spec.job, self.spec.attempt)
        return f"workers-{whole}"

    @property
    def workers(self) -> tuple[int, ...]:
        """Return the numbers of the workers on this host, which are consecutive."""
        return self.spec.workers_on(self.spec.host)

    @property
    def annotations(self) -> dict[str, str]:
        """Return the annotations by which the Job and its pods are known."""
        part = {naming.HOST: self.spec.host} if self.spec.shares else {}
        return {naming.JOB: self.spec.job, **part}

    @property
    def image(self) -> str:
        """Return the record's image, or the operator's. Raises RecordRefused."""
        return images.image_of(self.spec, self.settings)

    @property
    def python(self) -> str:
        """Return the interpreter of the record's command; the SideCar uses it too."""
        word = self.spec.command[0] if self.spec.command else ""
        return word if word != "python" and _PYTHON.match(word) else PYTHON


def template(attempt: Attempt, labels: dict[str, str]) -> Manifest:
    """Return the pod template of the attempt's Job. Raises LaunchError."""
    settings = attempt.settings
    subdomain = {"subdomain": attempt.service} if attempt.spec.workers > 1 else {}
    return {
        "metadata": {
            "labels": {**dict(settings.labels), **labels},
            "annotations": {
                **dict(settings.annotations),
                **IN_USE,
                **attempt.annotations,
            },
        },
        "spec": {
            **subdomain,
            **access(settings),
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": _grace_s(attempt.spec),
            "affinity": only_on(attempt.spec.host),
            "tolerations": tolerations(settings),
            "securityContext": security(settings),
            **runtime(attempt.runtime_class),
            "initContainers": [_init_container(attempt)],
            "containers": [_training_container(attempt)],
            "volumes": _volumes(attempt),
        },
    }


def access(settings: PodSettings) -> Manifest:
    """Return a pod's priority class and its credentials of registries; empty by default."""
    secrets = [{"name": name} for name in settings.image_pull_secrets]
    priority = settings.priority_class
    return {
        **({"imagePullSecrets": secrets} if secrets else {}),
        **({"priorityClassName": priority} if priority is not None else {}),
    }


def runtime(name: str | None) -> Manifest:
    """Return the setting for the runtime of a pod's containers; empty: the node's own."""
    return {} if name is None else {"runtimeClassName": name}


def security(settings: PodSettings) -> Manifest:
    """Return the user, groups and seccomp profile of all processes of a pod."""
    user = settings.user_id
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def gpu_command() -> tuple[str, ...]:
    """Return the command that prints, inside the container, the GPUs of its node and their use."""
    return (INTERPRETER, "-I", "-S", f"{PROGRAMS}/probe.py")


def look_command(job: str, attempt: int, generation: int) -> tuple[str, ...]:
    """Return the command that prints, inside the container, processes up to a generation."""
    return (
        *(INTERPRETER, "-I", "-S", f"{PROGRAMS}/init/look.py", "--folder", ATTEMPT_FOLDER),
        *("--job", job, "--attempt", str(attempt), "--generation", str(generation)),
    )


def _init_container(attempt: Attempt) -> Manifest:
    """Return the init container that installs the SideCar; it uses the job's own image."""
    archive = f"{ARCHIVE_FOLDER}/{ARCHIVE_KEY}"
    return {
        **_container(attempt, PLACER),
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


def _training_container(attempt: Attempt) -> Manifest:
    spec, mounts = attempt.spec, attempt.mounts
    # The image has no user with this number, and programs that look up their user name fail.
    named = (("HOME", "/tmp"), ("USER", "reshape"))
    environment = (*named, *attempt.environment)
    return {
        **_container(attempt, CONTAINER),
        "command": [
            *(attempt.python, "-I", "-S", f"{PROGRAMS}/init/__main__.py"),
            *("--folder", ATTEMPT_FOLDER, "--job", spec.job, "--attempt", str(spec.attempt)),
            *("--grace-s", f"{spec.save_s:g}", "--echo", "--"),
            *(attempt.python, "-I", "-S", f"{PROGRAMS}/agent/__main__.py"),
            *("--folder", ATTEMPT_FOLDER),
        ],
        "env": [{"name": name, "value": value} for name, value in environment],
        "volumeMounts": [
            {"name": "reshape", "mountPath": HOME},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "shared-memory", "mountPath": "/dev/shm"},
            *_claim_mounts(attempt, (*attempt.settings.mounts, *mounts.claims)),
        ],
    }


def _container(attempt: Attempt, name: str) -> Manifest:
    """Return what both containers have in common: image, limits, and no rights."""
    return {
        "name": name,
        "image": attempt.image,
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": _resources(attempt),
        "securityContext": dict(NO_RIGHTS),
    }


def _resources(attempt: Attempt) -> Manifest:
    """Return limits for every job, and the record's own amounts as requests to the scheduler."""
    spec, settings = attempt.spec, attempt.settings
    cpus = settings.cpus if spec.cpus is None else spec.cpus
    memory = _memory_bytes(attempt)
    cpu_request = min(CPU_REQUEST, cpus) if spec.cpus is None else cpus
    memory_request = min(MEMORY_REQUEST_BYTES, memory) if spec.memory_bytes is None else memory
    disk = str(settings.scratch_bytes)
    return {
        "limits": {"cpu": _cpu(cpus), "memory": str(memory), "ephemeral-storage": disk},
        "requests": {
            "cpu": _cpu(cpu_request),
            "memory": str(memory_request),
            "ephemeral-storage": "0",
        },
    }


def _memory_bytes(attempt: Attempt) -> int:
    own = attempt.spec.memory_bytes
    return attempt.settings.memory_bytes if own is None else own


def _volumes(attempt: Attempt) -> list[Manifest]:
    scratch = str(attempt.settings.scratch_bytes)
    # What is in it counts as the container's memory.
    shared = attempt.spec.shared_memory_bytes or _memory_bytes(attempt) // 2
    memory = {"medium": "Memory", "sizeLimit": str(shared)}
    volumes: list[Manifest] = [
        {"name": "reshape", "emptyDir": {"sizeLimit": str(SIDECAR_BYTES)}},
        {"name": "tmp", "emptyDir": {"sizeLimit": scratch}},
        {"name": "shared-memory", "emptyDir": memory},
        {"name": "archive", "configMap": {"name": attempt.archive.name}},
        {"name": "secret", "secret": {"secretName": attempt.name, "defaultMode": 0o440}},
    ]
    for number, claim in enumerate(_claims(attempt)):
        source = {"claimName": claim}
        volumes.append({"name": f"claim-{number}", "persistentVolumeClaim": source})
    return volumes


def _claims(attempt: Attempt) -> list[str]:
    """Return each claim once, in a fixed order."""
    return sorted({mount.claim for mount in (*attempt.settings.mounts, *attempt.mounts.claims)})


def _claim_mounts(attempt: Attempt, mounts: tuple[ClaimMount, ...]) -> list[Manifest]:
    names = {claim: f"claim-{number}" for number, claim in enumerate(_claims(attempt))}
    return [
        {
            "name": names[mount.claim],
            "mountPath": mount.path,
            "readOnly": mount.read_only,
            **_sub_path(mount),
        }
        for mount in mounts
    ]


def _sub_path(mount: ClaimMount) -> Manifest:
    """Return the folder of the claim. Only the log folder has the worker's number expanded."""
    if not mount.sub_path:
        return {}
    expanded = mount.path == LOGS and WORKER_INDEX in mount.sub_path
    return {"subPathExpr" if expanded else "subPath": mount.sub_path}


def only_on(node: str) -> Manifest:
    """Return an affinity to this node alone; the scheduler still checks that it has room."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def tolerations(settings: PodSettings) -> list[Manifest]:
    stay = [{"key": key, "operator": "Exists", "effect": "NoExecute"} for key in KEEP_ON_NODE]
    return stay + [{"key": key, "operator": "Exists"} for key in settings.tolerated_taints]


def refusing_taint(node: Node, settings: PodSettings) -> Taint | None:
    """Return a taint by which the node refuses new pods of this controller; None: it takes them.

    A cordon is a taint too, and is not meant here.
    """
    tolerated = {(t["key"], t.get("effect")) for t in tolerations(settings)}
    for taint in node.taints:
        known = {(taint.key, None), (taint.key, taint.effect)}
        if taint.effect in REFUSING and taint.key != CORDON and not known & tolerated:
            return taint
    return None


def _grace_s(spec: LaunchSpec) -> int:
    """Return a grace period that is longer than init takes to end without the controller."""
    return math.ceil(spec.save_s + limits.LEFTOVER_GRACE_S + limits.AGENT_END_S + END_MARGIN_S)


def _cpu(cpus: float) -> str:
    return f"{max(1, round(cpus * 1000))}m"
