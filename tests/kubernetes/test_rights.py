"""The controller's service account can do its work with deploy/kubernetes.yaml alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from kubernetes.config import incluster_config

from reshape_launcher.kubernetes.api import connect
from reshape_launcher.kubernetes.gpus import SimulatedDevices
from reshape_launcher.kubernetes.launcher import KubernetesLauncher
from reshape_launcher.kubernetes.preflight import findings
from reshape_launcher.kubernetes.rights import Right
from reshape_launcher.kubernetes.settings import PodSettings
from reshape_sidecar.wire import Mode
from tests.kubernetes.namespace import Namespace
from tests.kubernetes.pod_bed import PodBed
from tests.support import training_programs as programs
from tests.support.sidecar_bed import bed

pytestmark = pytest.mark.kubernetes
DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes.yaml"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PLACES = {
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Role": RBAC + "/namespaces/{}/roles",
    "RoleBinding": RBAC + "/namespaces/{}/rolebindings",
    "ClusterRole": RBAC + "/clusterroles",
    "ClusterRoleBinding": RBAC + "/clusterrolebindings",
}
FORBIDDEN = (
    Right("get", "secrets", "reads tokens"),
    Right("list", "secrets", "reads tokens"),
    Right("create", "pods", "runs anything"),
    Right("patch", "nodes", "changes machines", of_cluster=True),
    Right("create", "rolebindings", "gives itself rights", "rbac.authorization.k8s.io"),
)


def documents(namespace: str) -> list[dict[str, Any]]:
    """deploy/kubernetes.yaml for this namespace."""
    text = DEPLOY.read_text().replace("training", namespace).replace("kube-public", namespace)
    return [d for d in yaml.safe_load_all(text) if d["kind"] in PLACES]


@pytest.fixture
def kubeconfig(namespace: Namespace, tmp_path: Path) -> Iterator[Path]:
    """Credentials of the service account, by a token that the API server made."""
    api, made = namespace.api, documents(namespace.name)
    for document in made:
        api.create(PLACES[document["kind"]].format(namespace.name), document)
    path = namespace.path("serviceaccounts", "reshape") + "/token"
    token = api.create(path, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    config = yaml.safe_load(namespace.grounds.kubeconfig.read_text())
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(config))
    yield file
    for document in made:
        if document["kind"].startswith("Cluster"):
            api.delete(f"{PLACES[document['kind']]}/{document['metadata']['name']}")


@pytest.mark.gate
def test_a_job_is_launched_looked_into_and_removed_with_these_rights_alone(
    namespace: Namespace, kubeconfig: Path, tmp_path: Path
) -> None:
    def limited(path: Path) -> PodBed:
        made = PodBed(path, namespace)
        made.kubernetes.close()
        made.api = connect(kubeconfig, namespace.name, namespace.name)
        made.launcher = made.kubernetes = KubernetesLauncher(made.api, made.settings, made.devices)
        return made

    with bed(tmp_path, limited) as world:
        seen = world.training(programs.PLAIN)
        world.launch(world.spec(programs.PLAIN))
        assert world.count() == 1
        generation = world.coordinator.want(Mode.SAVE_AND_STOP)
        world.coordinator.until("stopped", lambda o: o.stopped_generation == generation)
        assert world.process().pid == seen.pid
        world.remove()
        assert not world.status().running


def test_doctor_finds_every_right_and_the_account_has_no_dangerous_one(
    namespace: Namespace, kubeconfig: Path, tmp_path: Path
) -> None:
    with bed(tmp_path, lambda path: PodBed(path, namespace)) as world:
        assert isinstance(world, PodBed)
        cluster = connect(kubeconfig, namespace.name, namespace.name)
        found = list(findings(cluster, world.settings, world.devices))
        assert [finding for finding in found if not finding.ok] == []
        assert [right for right in FORBIDDEN if cluster.may(right)] == []
        cluster.close()


def test_a_daemon_in_a_pod_finds_the_cluster_by_its_service_account(
    namespace: Namespace, kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the files and variables that a pod gets, but outside one."""
    config = yaml.safe_load(kubeconfig.read_text())
    server = urlsplit(config["clusters"][0]["cluster"]["server"])
    pods_root = namespace.api.get(namespace.path("configmaps", "kube-root-ca.crt"))
    trusted, token = tmp_path / "ca.crt", tmp_path / "token"
    trusted.write_text(pods_root["data"]["ca.crt"])
    token.write_text(config["users"][0]["user"]["token"])
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(trusted))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(server.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    found = connect(None, namespace.name)
    assert found.jobs("app.kubernetes.io/managed-by=reshape") == ()
    one = namespace.grounds.nodes[0]
    assert {node.name for node in found.nodes("")} > {one}
    assert [node.name for node in found.nodes(f"kubernetes.io/hostname={one}")] == [one]
    found.close()


def test_doctor_names_what_an_account_lacks(namespace: Namespace, kubeconfig: Path) -> None:
    with_less = namespace.path("roles", "reshape", group=RBAC)
    namespace.api.delete(with_less)
    cluster = connect(kubeconfig, namespace.name)
    settings = PodSettings(namespace=namespace.name, controller="test")
    found = {f.check: f for f in findings(cluster, settings, SimulatedDevices(1))}
    assert not found["may create jobs.batch"].ok
    assert "deploy/kubernetes.yaml" in found["may create jobs.batch"].remedy
    assert not found["manifest"].ok
    assert "forbidden" in found["manifest"].detail
    assert found["may list nodes"].ok
    cluster.close()


def test_doctor_names_a_namespace_that_is_not_there(namespace: Namespace) -> None:
    cluster = connect(namespace.grounds.kubeconfig, "nowhere")
    settings = PodSettings(namespace="nowhere", controller="test")
    found = {f.check: f for f in findings(cluster, settings, SimulatedDevices(1))}
    assert not found["namespace nowhere"].ok
    assert "kubectl create namespace nowhere" in found["namespace nowhere"].remedy
    cluster.close()
