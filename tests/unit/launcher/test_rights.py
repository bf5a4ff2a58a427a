"""What deploy/ gives the controller is what it says it needs: no more, no less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

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
