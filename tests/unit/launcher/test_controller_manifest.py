"""deploy/controller.yaml keeps to the restricted profile, and to what the program calls things."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from reshape_controller.http.app import SIDECAR_ROUTES
from reshape_gpu.settings import SETTINGS
from reshape_launcher.kubernetes.settings import USER_ID

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"


@pytest.fixture(scope="module")
def documents() -> dict[str, dict[str, Any]]:
    found = yaml.safe_load_all((DEPLOY / "controller.yaml").read_text())
    return {document["kind"]: document for document in found}


@pytest.fixture(scope="module")
def pod(documents: dict[str, dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = documents["Deployment"]["spec"]["template"]["spec"]
    return found


def test_its_pod_is_restricted_and_writes_to_its_volumes_alone(pod: dict[str, Any]) -> None:
    security, (container,) = pod["securityContext"], pod["containers"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] != 0
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"cpu", "memory"} <= container["resources"]["limits"].keys()
    for field in ("hostNetwork", "hostPID", "hostIPC", "nodeName"):
        assert field not in pod
    kinds = {key for volume in pod["volumes"] for key in volume if key != "name"}
    assert kinds <= {"emptyDir", "persistentVolumeClaim", "configMap", "secret"}


def test_no_service_of_the_namespace_becomes_a_setting(pod: dict[str, Any]) -> None:
    assert pod["enableServiceLinks"] is False, "the Service reshape would set RESHAPE_PORT"


def test_every_setting_is_one_that_the_program_knows(pod: dict[str, Any]) -> None:
    known = {setting.env for setting in SETTINGS}
    names = {entry["name"] for entry in pod["containers"][0]["env"]}
    assert names - known == {"HOME"}


def test_probes_and_service_go_where_pods_are_answered(
    documents: dict[str, dict[str, Any]], pod: dict[str, Any]
) -> None:
    (container,) = pod["containers"]
    paths = {pattern for pattern, _ in SIDECAR_ROUTES}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in paths
    env = {entry["name"]: entry.get("value") for entry in container["env"]}
    (port,), (service,) = container["ports"], documents["Service"]["spec"]["ports"]
    assert service["targetPort"] == port["name"]
    assert env["RESHAPE_SIDECAR_BIND"] == f"0.0.0.0:{port['containerPort']}"
    assert env["RESHAPE_SIDECAR_URL"].endswith(f".svc:{service['port']}")
    labels = documents["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert documents["Service"]["spec"]["selector"] == labels


def test_a_controller_never_runs_beside_the_one_before(documents: dict[str, Any]) -> None:
    assert documents["Deployment"]["spec"]["strategy"] == {"type": "Recreate"}


def test_it_has_a_user_of_its_own_and_no_pod_of_a_job_gets_its_claim(
    documents: dict[str, dict[str, Any]], pod: dict[str, Any]
) -> None:
    cluster = yaml.safe_load(documents["ConfigMap"]["data"]["cluster.yaml"])
    security = pod["securityContext"]
    jobs_user = cluster.get("user_id", USER_ID)
    assert jobs_user not in (security["runAsUser"], security["runAsGroup"], security["fsGroup"])
    assert security["supplementalGroups"] == [jobs_user], "it reads the jobs' logs by their group"
    claims = {
        volume["name"]: volume["persistentVolumeClaim"]["claimName"]
        for volume in pod["volumes"]
        if "persistentVolumeClaim" in volume
    }
    assert cluster["controller_claim"] == claims["home"]
    assert cluster["controller_claim"] != cluster["storage_claim"]
