"""What deploy/ gives the controller is what it says it needs: no more, no less."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from reshape_launcher.kubernetes import naming
from reshape_launcher.kubernetes.rights import RIGHTS

DEPLOY = Path(__file__).resolve().parents[3] / "deploy" / "kubernetes.yaml"
Grant = tuple[str, str, str, bool]


def granted() -> list[Grant]:
    """Each (verb, group, resource, whole cluster) of the roles."""
    found: list[Grant] = []
    for document in yaml.safe_load_all(DEPLOY.read_text()):
        for rule in document.get("rules", ()):
            assert rule.keys() == {"apiGroups", "resources", "verbs"}
            found += [
                (verb, group, resource, document["kind"] == "ClusterRole")
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            ]
    return found


def test_the_roles_equal_the_list_of_rights() -> None:
    needed: list[Grant] = [
        (
            right.verb,
            right.group,
            f"{right.resource}/{right.subresource}" if right.subresource else right.resource,
            right.of_cluster,
        )
        for right in RIGHTS
    ]
    assert sorted(granted()) == sorted(needed)


def test_no_right_reads_a_secret_writes_a_node_or_makes_a_pod() -> None:
    grants = {(verb, resource) for verb, _, resource, _ in granted()}
    assert not [grant for grant in grants if "*" in grant]
    assert {verb for verb, resource in grants if resource == "secrets"} == {"create"}
    assert {verb for verb, resource in grants if resource == "nodes"} == {"list", "watch"}
    assert ("create", "pods") not in grants


def test_every_role_is_bound_to_the_controllers_account_alone() -> None:
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(DEPLOY.read_text()))
    bindings = [d for d in documents if d["kind"].endswith("Binding")]
    assert {b["roleRef"]["name"] for b in bindings} == {
        d["metadata"]["name"] for d in documents if d["kind"] in ("Role", "ClusterRole")
    }
    for binding in bindings:
        (subject,) = binding["subjects"]
        assert (subject["kind"], subject["name"]) == ("ServiceAccount", "reshape")


CALLS = {
    "create_namespaced_job": ("create", "jobs"),
    "read_namespaced_job": ("get", "jobs"),
    "list_namespaced_job": ("list", "jobs"),
    "patch_namespaced_job": ("patch", "jobs"),
    "delete_namespaced_job": ("delete", "jobs"),
    "list_namespaced_pod": ("list", "pods"),
    "delete_namespaced_pod": ("delete", "pods"),
    "list_namespaced_event": ("list", "events"),
    "connect_get_namespaced_pod_exec": ("get", "pods/exec"),
    "create_namespaced_secret": ("create", "secrets"),
    "create_namespaced_config_map": ("create", "configmaps"),
    "create_namespaced_service": ("create", "services"),
    "read_namespaced_persistent_volume_claim": ("get", "persistentvolumeclaims"),
    "read_namespaced_lease": ("get", "leases"),
    "list_namespaced_lease": ("list", "leases"),
    "create_namespaced_lease": ("create", "leases"),
    "replace_namespaced_lease": ("update", "leases"),
    "list_node": ("list", "nodes"),
    "read_runtime_class": ("get", "runtimeclasses"),
}
"""The right that each call of the Kubernetes client needs."""
BESIDE = {
    ("watch", "jobs"),
    ("watch", "pods"),
    ("watch", "nodes"),
    # API servers ask for it at an exec by WebSocket too.
    ("create", "pods/exec"),
}
"""Rights that a list's own watch, and an exec, need beside the call's own."""


def test_each_right_belongs_to_a_call_of_the_launcher() -> None:
    folder = DEPLOY.parents[1] / "launcher" / "reshape_launcher" / "kubernetes"
    text = "\n".join(path.read_text() for path in sorted(folder.glob("*.py")))
    verbs = "create|read|list|patch|delete|replace|connect_get"
    pattern = rf"\b((?:{verbs})_(?:namespaced_\w+|node|runtime_class))\b"
    called = set(re.findall(pattern, text)) - {"create_namespaced_job_with_http_info"}
    assert called == set(CALLS), "a call without a right, or a right without a call"
    needed = {CALLS[name] for name in called} | BESIDE
    assert {(verb, resource) for verb, _, resource, _ in granted()} == needed


POLICIES = DEPLOY.with_name("network-policy.yaml")


def test_pods_of_jobs_reach_no_metadata_address_and_others_not_the_controller() -> None:
    from_jobs, of_jobs = yaml.safe_load_all(POLICIES.read_text())
    (rule,) = from_jobs["spec"]["ingress"]
    (peer,) = rule["from"]
    labels = naming.labels("reshape", "job-1", 1, "1")
    assert peer["podSelector"]["matchLabels"].items() <= labels.items()
    assert of_jobs["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    (out,) = of_jobs["spec"]["egress"]
    blocked = [each["ipBlock"]["except"] for each in out["to"] if "ipBlock" in each]
    assert blocked == [["169.254.169.254/32"], ["fd00:ec2::254/128"]]
    chart = (DEPLOY.parent / "chart" / "templates" / "network.yaml").read_text()
    for text in ("169.254.169.254/32", "fd00:ec2::254/128", "port: 7471", "namespaceSelector: {}"):
        assert text in chart
