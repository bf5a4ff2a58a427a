"""The Helm chart, by helm itself: it gives the plain manifests, and refuses what is wrong."""

from __future__ import annotations

import pytest
import yaml

from reshape_controller.http.app import SIDECAR_ROUTES
from reshape_launcher.kubernetes import naming
from tests.kubernetes import helm
from tests.kubernetes.deployed import CHART, Document, by_name, plain, rendered
from tests.kubernetes.running import ClusterError, run

pytestmark = pytest.mark.kubernetes


@pytest.mark.gate
def test_helm_finds_nothing_wrong_with_the_chart() -> None:
    assert "0 chart(s) failed" in run(helm.provide(), "lint", "--strict", CHART)


def test_with_its_defaults_the_chart_gives_the_plain_manifests() -> None:
    found = by_name(rendered())
    del found["Deployment", "reshape"]["spec"]["template"]["metadata"]["annotations"]
    kept = found["PersistentVolumeClaim", "reshape"]["metadata"].pop("annotations")
    user = kept.pop("reshape.dev/user")
    assert user == "10002", "the next release of this name goes on as the same user"
    assert kept == {"helm.sh/resource-policy": "keep"}, "what was accepted outlives the release"
    assert found == by_name(plain())


def test_another_cluster_file_is_another_pod_and_nothing_else_is() -> None:
    def pod(*values: str) -> Document:
        found = by_name(rendered(*values))["Deployment", "reshape"]
        template: Document = found["spec"]["template"]
        return template

    assert pod() == pod() == pod("store.size=6Gi")
    assert pod("cluster.keep_finished_s=5") != pod()


def test_another_release_has_the_same_rules_under_its_own_names() -> None:
    ours, others = plain(), rendered(namespace="elsewhere", release="second")
    assert {d["metadata"]["name"] for d in others} == {
        *("second", "second-nodes-elsewhere", "second-node-leases-elsewhere"),
    }
    spaces = {d["metadata"].get("namespace", "elsewhere") for d in others}
    assert spaces == {"elsewhere", "kube-public"}
    for kind in ("Role", "ClusterRole"):
        mine, other = ([d["rules"] for d in found if d["kind"] == kind] for found in (ours, others))
        assert mine == other
    for binding in (d for d in others if d["kind"].endswith("Binding")):
        (subject,) = binding["subjects"]
        assert (subject["name"], subject["namespace"]) == ("second", "elsewhere")
        assert binding["roleRef"]["name"] in {d["metadata"]["name"] for d in others}


def test_several_controllers_get_a_lease_shared_secrets_and_no_claim() -> None:
    found = by_name(rendered("replicas=2", "store.secret=database"))
    assert ("PersistentVolumeClaim", "reshape") not in found
    pod = found["Deployment", "reshape"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    env = {entry["name"]: entry for entry in container["env"]}
    assert env["RESHAPE_LEASE"]["value"] == "reshape"
    reference = env["RESHAPE_STORE"]["valueFrom"]["secretKeyRef"]
    assert reference == {"name": "database", "key": "uri"}
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert env["RESHAPE_SECRETS"]["value"] in mounts
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["secrets"]["projected"]["defaultMode"] == 0o440
    needed, named_tokens = (s["secret"] for s in volumes["secrets"]["projected"]["sources"])
    assert [item["key"] for item in needed["items"]] == ["token", "secret"]
    assert [item["key"] for item in named_tokens["items"]] == ["tokens.json"]
    assert named_tokens["optional"], "a Secret without named tokens starts a controller too"
    assert volumes["home"] == {"name": "home", "emptyDir": {}}


def test_several_controllers_on_a_file_are_refused_with_the_remedy() -> None:
    with pytest.raises(ClusterError, match=r"replicas: 2 .* set store\.secret"):
        rendered("replicas=2")


def test_what_is_set_for_the_pod_is_in_it() -> None:
    found = by_name(
        rendered(
            "imagePullSecrets={registry}",
            "nodeSelector.pool=control",
            "tolerations[0].key=control",
            "tolerations[0].operator=Exists",
            "priorityClassName=high",
            "podLabels.team=a",
            "podAnnotations.note=b",
            "resources.limits.cpu=3",
            "simulatedGpus=2",
        )
    )
    template = found["Deployment", "reshape"]["spec"]["template"]
    pod = template["spec"]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["nodeSelector"] == {"pool": "control"}
    assert pod["tolerations"] == [{"key": "control", "operator": "Exists"}]
    assert pod["priorityClassName"] == "high"
    assert template["metadata"]["labels"]["team"] == "a"
    assert template["metadata"]["annotations"]["note"] == "b"
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["cpu"] == 3
    assert {"name": "RESHAPE_SIMULATED_GPUS", "value": "2"} in container["env"]


def test_gpus_are_simulated_only_if_a_value_asks_for_it() -> None:
    (container,) = by_name(rendered())["Deployment", "reshape"]["spec"]["template"]["spec"][
        "containers"
    ]
    assert "RESHAPE_SIMULATED_GPUS" not in {entry["name"] for entry in container["env"]}


def test_the_chart_gives_the_plain_network_policies_if_asked_and_for_its_own_pods() -> None:
    policies = list(yaml.safe_load_all((CHART.parent / "network-policy.yaml").read_text()))
    kind = "NetworkPolicy"
    assert kind not in {named for named, _ in by_name(rendered())}
    found = by_name(rendered("networkPolicy.enabled=true"))
    assert {key: found[key] for key in found if key[0] == kind} == by_name(policies)
    others = by_name(
        rendered("networkPolicy.enabled=true", namespace="elsewhere", release="second")
    )
    of_controller = others[kind, "second-controller"]["spec"]
    pod = others["Deployment", "second"]["spec"]["template"]
    labels = pod["metadata"]["labels"]
    assert of_controller["podSelector"]["matchLabels"].items() <= labels.items()
    (container,) = pod["spec"]["containers"]
    (rule,) = of_controller["ingress"]
    assert {port["port"] for port in rule["ports"]} == {
        port["containerPort"] for port in container["ports"]
    }
    (peer,) = rule["from"]
    of_jobs = others[kind, "second-training"]["spec"]["podSelector"]
    job_labels = naming.labels("second", "job-1", 1, "1").items()
    for selector in (peer["podSelector"], of_jobs):
        assert selector["matchLabels"].items() <= job_labels
    assert {d["metadata"]["namespace"] for k, d in others.items() if k[0] == kind} == {"elsewhere"}
    scraped = by_name(
        rendered(
            "networkPolicy.enabled=true",
            "networkPolicy.scrapers[0].namespaceSelector.matchLabels.name=monitoring",
        )
    )[kind, "reshape-controller"]["spec"]["ingress"][0]["from"]
    assert scraped[1:] == [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]


def test_a_service_monitor_scrapes_the_port_for_pods() -> None:
    words = ("serviceMonitor.enabled=true", "serviceMonitor.labels.release=prometheus")
    found = by_name(rendered(*words))
    monitor, service = found["ServiceMonitor", "reshape"], found["Service", "reshape"]
    assert monitor["metadata"]["labels"] == {"release": "prometheus"}
    assert monitor["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert endpoint["path"] in {pattern for pattern, _ in SIDECAR_ROUTES}
    assert "authorization" not in endpoint
    with_token = by_name(rendered(*words, "serviceMonitor.tokenSecret=scraper"))
    (endpoint,) = with_token["ServiceMonitor", "reshape"]["spec"]["endpoints"]
    assert endpoint["authorization"]["credentials"] == {"name": "scraper", "key": "token"}


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("simulated=4", "simulated"),
        ("cluster.storageClaim=x", "storageClaim"),
        ("replicas=two", "replicas"),
        ("store.sizes=1Gi", "sizes"),
        ("image=", "image"),
    ],
)
def test_a_value_that_the_chart_does_not_know_is_refused(value: str, named: str) -> None:
    with pytest.raises(ClusterError, match=named):
        rendered(value)
