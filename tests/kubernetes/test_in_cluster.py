"""The controller as a pod of deploy/: with its service account alone it runs a job in another pod.

The namespace enforces the restricted profile, for the controller's own pod as for jobs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.daemon_bed import SAVES
from tests.kubernetes.controller_pod import ControllerPod
from tests.kubernetes.deployed import plain
from tests.kubernetes.namespace import Namespace, Thing, eventually

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(1200)]
ROLES = ("Role", "ClusterRole")


@pytest.fixture
def controller(namespace: Namespace) -> Iterator[ControllerPod]:
    """The plain manifests, applied."""
    made = ControllerPod(namespace, plain(namespace.name))
    made.cluster_file()
    try:
        made.apply()
        yield made
    finally:
        made.close()


def job(controller: ControllerPod, pod: Thing, name: str) -> Thing:
    """The job, as the command in the controller's pod shows it."""
    said = controller.reshape(pod, "get", name, "-o", "json")
    found: Thing = json.loads(said[said.index("{") :])
    return found


def test_a_job_is_submitted_to_the_controllers_pod_and_completes_in_a_pod(
    controller: ControllerPod,
) -> None:
    pod = controller.ready()
    assert pod["spec"]["serviceAccountName"] == "reshape"
    assert "leader, ready" in controller.reshape(pod, "status")
    record = {
        "command": ["python", "count.py", "600"],
        "framework": "other",
        "optional_gpus": [4],
        "steps": 600,
    }
    path = controller.place("count", SAVES, record)
    assert "count" in controller.reshape(pod, "submit", path)
    running = eventually(
        "the job trains",
        lambda: (j := job(controller, pod, "count"))["pid"] and j["state"] == "running" and j,
    )

    # The controller's pod goes; another comes with the same store, and training does not notice.
    controller.api.delete(controller.namespace.path("pods", pod["metadata"]["name"]), grace_s=0)
    gone = pod["metadata"]["uid"]
    eventually("it is gone", lambda: all(p["metadata"]["uid"] != gone for p in controller.pods()))
    following = controller.ready()
    assert "epoch 2" in controller.reshape(following, "status")
    again = eventually(
        "its SideCar has found the new one",
        lambda: (j := job(controller, following, "count"))["pid"] and j,
    )
    assert (again["pid"], again["attempt"]) == (running["pid"], 1)

    def ended() -> Thing | None:
        found = job(controller, following, "count")
        assert found["state"] in ("running", "completed"), found
        return found if found["state"] == "completed" else None

    found = eventually("the job completes", ended, 300.0)
    assert (found["failures"], found["attempt"], found["process_restarts"]) == (0, 1, 0)


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
