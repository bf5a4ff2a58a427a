"""The restricted pod security profile and our own deny-list, as a checker of plain manifests.

Written from the published profile, without a look at the code that makes manifests. Does: names
every violation. Never: repairs one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

VOLUMES = {"configMap", "downwardAPI", "emptyDir", "persistentVolumeClaim", "projected", "secret"}
POD_FIELDS = {
    *("restartPolicy", "automountServiceAccountToken", "enableServiceLinks", "affinity"),
    *("terminationGracePeriodSeconds", "tolerations", "securityContext", "initContainers"),
    *("containers", "volumes", "runtimeClassName", "subdomain"),
}
"""All that a pod of ours may say; hostNetwork, hostPID, nodeName and the rest are not among it."""
CONTAINER_FIELDS = {
    *("name", "image", "imagePullPolicy", "command", "env", "resources", "securityContext"),
    *("volumeMounts", "workingDir", "terminationMessagePolicy"),
}
CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "privileged": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
RESOURCES = {"cpu", "memory", "ephemeral-storage"}
ENV_FORBIDDEN = ("LD_", "PYTHON", "CUDA_", "HTTP_PROXY", "http_proxy")


def violations(pod: dict[str, Any]) -> Iterator[str]:
    """Everything that is wrong with a pod's ``spec``."""
    yield from (f"field {name}" for name in pod.keys() - POD_FIELDS)
    security = pod.get("securityContext", {})
    if security.get("runAsNonRoot") is not True or not security.get("runAsUser"):
        yield "may run as root"
    if security.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield "no seccomp profile"
    if security.keys() - {
        *("runAsNonRoot", "runAsUser", "runAsGroup", "fsGroup", "fsGroupChangePolicy"),
        "seccompProfile",
    }:
        yield "a security field that is not known"
    if pod.get("automountServiceAccountToken") is not False:
        yield "an API token is mounted"
    if pod.get("restartPolicy") != "Never":
        yield "containers restart by themselves"
    for volume in pod["volumes"]:
        kinds = volume.keys() - {"name"}
        if len(kinds) != 1 or kinds - VOLUMES:
            yield f"volume {sorted(kinds)}"
        if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]:
            yield f"volume {volume['name']} has no limit"
    names = [volume["name"] for volume in pod["volumes"]]
    if len(set(names)) < len(names):
        yield "two volumes of one name"
    for container in (*pod["containers"], *pod.get("initContainers", ())):
        yield from _container(container, set(names))


def _container(container: dict[str, Any], volumes: set[str]) -> Iterator[str]:
    yield from (f"container field {name}" for name in container.keys() - CONTAINER_FIELDS)
    if container.get("securityContext") != CONTAINER_SECURITY:
        yield f"security of {container['name']}"
    resources = container.get("resources", {})
    if resources.get("limits", {}).keys() != RESOURCES:
        yield "a limit is missing"
    if resources.keys() - {"limits", "requests"} or resources["requests"].keys() - RESOURCES:
        yield "it asks Kubernetes for a device"
    for variable in container.get("env", ()):
        if set(variable) != {"name", "value"} or variable["name"].startswith(ENV_FORBIDDEN):
            yield f"variable {variable['name']}"
    paths = [mount["mountPath"] for mount in container["volumeMounts"]]
    if len(set(paths)) < len(paths):
        yield "two mounts at one path"
    for mount in container["volumeMounts"]:
        if mount["name"] not in volumes or mount.keys() - {
            *("name", "mountPath", "readOnly", "subPath", "subPathExpr"),
        }:
            yield f"mount {mount}"
        own_number = mount.get("subPathExpr", "").replace("$(JOB_COMPLETION_INDEX)", "")
        if "$" in own_number:
            yield f"sub path {mount['subPathExpr']!r} is of a variable"
        sub_path = mount.get("subPath", own_number)
        if sub_path.startswith("/") or ".." in sub_path.split("/"):
            yield f"sub path {sub_path!r}"
