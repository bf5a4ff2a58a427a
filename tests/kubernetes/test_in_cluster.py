"""The controller as a pod of deploy/, or two: jobs run in pods, by its service account alone.

The namespace enforces the restricted profile, for the controller's own pod as for jobs.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from tests.kubernetes.controller_pod import ControllerPod
from tests.kubernetes.deployed import Document, plain, rendered
from tests.kubernetes.namespace import Namespace, Thing, eventually
from tests.support.daemon_bed import SAVES
from tests.support.mongo_proxy import Proxy

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(1200)]
ROLES = ("Role", "ClusterRole")


@contextmanager
def applied(namespace: Namespace, documents: list[Document]) -> Iterator[ControllerPod]:
    """What an operator has who applies them."""
    made = ControllerPod(namespace, documents)
    made.cluster_file()
    try:
        made.apply()
        yield made
    finally:
        made.close()


@pytest.fixture
def controller(namespace: Namespace) -> Iterator[ControllerPod]:
    """The plain manifests, applied."""
    with applied(namespace, plain(namespace.name)) as made:
        yield made


@pytest.fixture
def pair(namespace: Namespace, address: str) -> Iterator[ControllerPod]:
    """The chart with two controllers, on a database that pods reach."""
    server = urlsplit(address)
    assert server.port is not None, "a port in MONGODB_URI"
    with Proxy(server.port, namespace.grounds.address) as proxy:
        here = server.hostname == "127.0.0.1"
        there = f"{namespace.grounds.address}:{proxy.port}" if here else server.netloc
        given = {
            "uri": server._replace(netloc=there).geturl(),
            **{name: secrets.token_hex(32) for name in ("token", "secret")},
        }
        secret = {"kind": "Secret", "metadata": {"name": "database"}, "stringData": given}
        leases = f"cluster.node_lease_namespace={namespace.name}"
        words = ("replicas=2", "store.secret=database", leases)
        chart = rendered(*words, namespace=namespace.name)
        with applied(namespace, [secret, *chart]) as made:
            yield made


def job(controller: ControllerPod, pod: Thing, name: str) -> Thing:
    """The job, as the command in the controller's pod shows it."""
    said = controller.reshape(pod, "get", name, "-o", "json")
    assert "{" in said, said
    found: Thing = json.loads(said[said.index("{") :])
    return found


def submitted(controller: ControllerPod, pod: Thing) -> Thing:
    """A job that was submitted in the controller's pod, once it trains."""
    record = {
        "command": ["python", "count.py", "600"],
        "framework": "other",
        "optional_gpus": [4],
        "steps": 600,
    }
    path = controller.place("count", SAVES, record)
    assert "count" in controller.reshape(pod, "submit", path)
    return eventually(
        "the job trains",
        lambda: (j := job(controller, pod, "count"))["pid"] and j["state"] == "running" and j,
    )


def followed(controller: ControllerPod, pod: Thing) -> Thing:
    """End the leader's pod; the pod that leads after it."""
    gone = pod["metadata"]["uid"]
    controller.api.delete(controller.namespace.path("pods", pod["metadata"]["name"]), grace_s=0)
    eventually("it is gone", lambda: all(p["metadata"]["uid"] != gone for p in controller.pods()))
    following = controller.ready()
    assert "epoch 2" in controller.reshape(following, "status")
    return following


def completes_unharmed(controller: ControllerPod, pod: Thing, running: Thing) -> None:
    """Training did not notice who leads, and ends in the pod in which it began."""
    again = eventually(
        "its SideCar has found the new one",
        lambda: (j := job(controller, pod, "count"))["pid"] and j,
    )
    assert (again["pid"], again["attempt"]) == (running["pid"], 1)

    def ended() -> Thing | None:
        found = job(controller, pod, "count")
        assert found["state"] in ("running", "completed"), found
        return found if found["state"] == "completed" else None

    found = eventually("the job completes", ended, 300.0)
    assert (found["failures"], found["attempt"], found["process_restarts"]) == (0, 1, 0)


@pytest.mark.gate
def test_a_job_is_submitted_to_the_controllers_pod_and_completes_in_a_pod(
    controller: ControllerPod,
) -> None:
    pod = controller.ready()
    assert pod["spec"]["serviceAccountName"] == "reshape"
    assert "leader, ready" in controller.reshape(pod, "status")
    running = submitted(controller, pod)
    assert "begins at step 0" in controller.reshape(pod, "logs", "count")
    port = controller.namespace.path("pods", pod["metadata"]["name"]) + ":7471/proxy"
    assert "reshape_jobs{" in controller.api.text(f"{port}/metrics"), "a scrape needs no token"
    completes_unharmed(controller, followed(controller, pod), running)


def test_of_two_controllers_in_pods_one_leads_and_the_other_stands_by_for_it(
    pair: ControllerPod,
) -> None:
    leader = pair.ready()
    running = submitted(pair, leader)

    def standby() -> Thing | None:
        others = [p for p in pair.pods() if p["metadata"]["uid"] != leader["metadata"]["uid"]]
        return next((p for p in others if "standby" in pair.reshape(p, "status")), None)

    other = eventually("the other stands by", standby)
    assert not any(part["ready"] for part in other["status"]["containerStatuses"])
    completes_unharmed(pair, followed(pair, leader), running)


def test_its_rights_are_those_of_the_manifest(controller: ControllerPod) -> None:
    pod = controller.ready()
    said = controller.reshape(pod, "doctor", "-o", "json")
    report = json.loads(said[said.index("{") :])
    wrong = [finding for finding in report["findings"] if not finding["ok"]]
    # Its own port is taken, by itself: doctor is for before the start.
    assert [finding["check"] for finding in wrong] == ["SideCars' address"]
    documents = plain(controller.namespace.name)
    rules = [rule for one in documents if one["kind"] in ROLES for rule in one["rules"]]
    may = {f["check"] for f in report["findings"] if f["check"].startswith("may ")}
    verbs = sum(len(rule["verbs"]) * len(rule["resources"]) for rule in rules)
    assert len(may) == verbs, "each right of the manifest"
