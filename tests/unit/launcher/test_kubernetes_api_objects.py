"""What the API's own objects become: why a pod does not come up, how it ended, what a node is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes import client

from reshape_launcher.kubernetes import api_objects, naming, pod_status
from reshape_launcher.kubernetes.values import ClaimInfo, JobInfo, Node, PodInfo
from reshape_sidecar.init.values import FAILED_FOR_GOOD, UNFINISHED

CREATED = "2026-11-21T12:00:00Z"


def pod(status: dict[str, Any], **metadata: Any) -> PodInfo:
    """A pod of Job ``a-1`` with this status, as the client reads it."""
    document = {
        "metadata": {
            "name": "a-1-x",
            "creationTimestamp": CREATED,
            "labels": {naming.JOB_NAME_LABEL: "a-1"},
            **metadata,
        },
        "spec": {"nodeName": "node1", "containers": [{"name": "training"}]},
        "status": {"phase": "Pending", **status},
    }
    return api_objects.pod_of(client.V1Pod.from_dict(document))


def container(name: str, **state: Any) -> dict[str, Any]:
    return {
        "name": name,
        "state": state,
        "ready": False,
        "restartCount": 0,
        "image": "x",
        "imageID": "",
    }


def test_a_pod_that_comes_up_has_no_trouble() -> None:
    seen = pod(
        {
            "initContainerStatuses": [container("place-sidecar", running={})],
            "containerStatuses": [
                container("training", waiting={"reason": "PodInitializing"}),
            ],
        }
    )
    at_s = datetime.fromisoformat(CREATED).timestamp()
    assert seen == PodInfo("a-1-x", "a-1", "node1", created_at_s=at_s)


OUTAGE = "rpc error: code = Unknown desc = dial tcp: connection refused"
NOT_FOUND = "rpc error: code = NotFound desc = nope:1: not found"


@pytest.mark.parametrize(
    ("reason", "message", "lasting"),
    [
        ("ErrImagePull", OUTAGE, False),
        ("ErrImagePull", NOT_FOUND, True),
        ("ImagePullBackOff", f"Back-off pulling image: ErrImagePull: {OUTAGE}", False),
        ("ImagePullBackOff", f"Back-off pulling image: ErrImagePull: {NOT_FOUND}", True),
        ("ErrImageNeverPull", "nope:1\n is not there", True),
        ("InvalidImageName", "Nope:1", True),
        ("CreateContainerConfigError", "no secret yet", False),
    ],
)
def test_an_image_that_cannot_be_had_is_told_in_the_nodes_words(
    reason: str, message: str, lasting: bool
) -> None:
    waiting = {"reason": reason, "message": message}
    seen = pod({"initContainerStatuses": [container("place-sidecar", waiting=waiting)]})
    assert seen.trouble == f"{reason}: {' '.join(message.split())}"
    assert (seen.lasting, seen.started) == (lasting, False)


def test_a_node_without_room_is_told_in_the_schedulers_words() -> None:
    condition = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes: no cpu"}
    seen = pod({"conditions": [condition]})
    assert seen.trouble == "it cannot be scheduled: 0/2 nodes: no cpu"


def test_an_image_without_python_is_named_as_that() -> None:
    ended = {"exitCode": 128, "reason": "StartError", "message": "exec: python3: not found"}
    seen = pod(
        {
            "phase": "Failed",
            "initContainerStatuses": [container("place-sidecar", terminated=ended)],
        }
    )
    assert seen.over
    assert seen.reason == "the SideCar cannot be installed: exec: python3: not found"


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        ({"exitCode": 0, "reason": "Completed"}, "ended on request; no process is left"),
        ({"exitCode": 137, "reason": "OOMKilled"}, "OOMKilled: exit code 137"),
        ({"exitCode": 1, "reason": "Error", "message": "boom"}, "Error: boom"),
    ],
)
def test_how_a_container_ended_is_kept(ended: dict[str, Any], reason: str) -> None:
    phase = "Succeeded" if ended["exitCode"] == 0 else "Failed"
    seen = pod({"phase": phase, "containerStatuses": [container("training", terminated=ended)]})
    assert (seen.exit_code, seen.reason, seen.over) == (ended["exitCode"], reason, True)


@pytest.mark.parametrize("code", [FAILED_FOR_GOOD, UNFINISHED])
def test_an_init_that_says_more_than_0_has_ended_in_order_all_the_same(code: int) -> None:
    ended = container("training", terminated={"exitCode": code, "reason": "Error"})
    seen = pod({"phase": "Failed", "containerStatuses": [ended]}, deletionTimestamp=CREATED)
    assert (seen.exit_code, seen.over) == (0, True)
    assert seen.reason == "its pod was deleted; no process is left"


def test_a_job_remembers_that_its_deleted_pod_ended_in_order() -> None:
    for reason, in_order in (("PodFailurePolicy", True), ("BackoffLimitExceeded", False)):
        failed = {"type": "Failed", "status": "True", "reason": reason, "message": "code 76"}
        seen = job(status={"conditions": [failed]})
        assert seen is not None
        (status,) = pod_status.statuses([seen], [])
        assert (status.running, status.exit_code) == (False, 0 if in_order else None)


def test_a_pod_that_was_evicted_says_why() -> None:
    seen = pod({"phase": "Failed", "reason": "Evicted", "message": "disk pressure"})
    assert seen.reason == "Evicted: disk pressure"


DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


@pytest.mark.parametrize(
    ("status", "meta", "reason"),
    [
        ({"conditions": [DISRUPTED]}, {}, "PreemptionByScheduler"),
        ({"conditions": [DISRUPTED], "reason": "Evicted"}, {}, "Evicted"),
        ({"conditions": [DISRUPTED | {"status": "False"}]}, {}, "Error: exit code 137"),
        ({}, {"deletionTimestamp": CREATED}, "Error: exit code 137"),
    ],
)
def test_who_took_the_pod_away_says_more_than_its_exit_code(
    status: dict[str, Any], meta: dict[str, Any], reason: str
) -> None:
    ended = container("training", terminated={"exitCode": 137, "reason": "Error"})
    assert pod({"phase": "Failed", "containerStatuses": [ended], **status}, **meta).reason == reason


def test_a_pod_that_ended_in_order_because_somebody_deleted_it_says_so() -> None:
    ended = container("training", terminated={"exitCode": 0, "reason": "Completed"})
    status = {"phase": "Succeeded", "containerStatuses": [ended]}
    seen = pod(status, deletionTimestamp=CREATED)
    assert seen.reason == "its pod was deleted; no process is left"


def test_a_deleted_pod_ends_and_is_not_over() -> None:
    seen = pod(
        {"phase": "Running", "containerStatuses": [container("training", running={})]},
        deletionTimestamp=CREATED,
        deletionGracePeriodSeconds=30,
    )
    assert (seen.deletion_grace_s, seen.started, seen.over) == (30, True, False)


def event(second: int, kind: str, reason: str, *, series: bool = False) -> client.CoreV1Event:
    at = datetime(2026, 11, 21, 12, 0, second, tzinfo=UTC)
    of = {"metadata": client.V1ObjectMeta(), "involved_object": client.V1ObjectReference()}
    said = {"type": kind, "reason": reason, "message": f"because of  {reason}"}
    when = {"event_time": at} if series else {"last_timestamp": at}
    return client.CoreV1Event(**of, **said, **when)


MOUNT = "FailedMount: because of FailedMount"


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([], ""),
        ([event(1, "Normal", "Scheduled"), event(2, "Warning", "FailedMount")], MOUNT),
        ([event(2, "Warning", "FailedMount"), event(1, "Normal", "Scheduled")], MOUNT),
        ([event(2, "Warning", "FailedMount"), event(3, "Normal", "Pulling")], ""),
        ([event(2, "Normal", "Pulling"), event(2, "Warning", "FailedMount")], ""),
        ([event(2, "Normal", "Pulling"), event(3, "Warning", "FailedMount", series=True)], MOUNT),
    ],
)
def test_a_warning_counts_until_something_else_is_said(
    events: list[client.CoreV1Event], told: str
) -> None:
    assert api_objects.warning(events) == told


def job(**more: Any) -> JobInfo | None:
    document = {
        "metadata": {
            "name": "a-1",
            "labels": {naming.ATTEMPT: "3"},
            "annotations": {naming.JOB: "a-0123"},
        },
        "spec": {"template": {"spec": {"containers": [{"name": "training"}]}}},
        **more,
    }
    return api_objects.job_of(client.V1Job.from_dict(document))


def test_a_job_is_over_by_its_condition_alone() -> None:
    assert job() == JobInfo("a-1", "a-0123", 3)
    target = {"type": "FailureTarget", "status": "True"}
    assert job(status={"conditions": [target]}) == JobInfo("a-1", "a-0123", 3)
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
    seen = job(status={"conditions": [failed]})
    assert seen is not None
    assert seen.over == "BackoffLimitExceeded"


@pytest.mark.parametrize("count", ["failed", "succeeded"])
def test_a_job_remembers_that_a_pod_of_it_has_ended(count: str) -> None:
    assert job(status={"active": 1, count: 1}) == JobInfo("a-1", "a-0123", 3, has_ended_pod=True)
    assert job(status={"active": 2}) == JobInfo("a-1", "a-0123", 3)


def test_a_job_has_as_many_pods_as_it_has_workers() -> None:
    template = {"spec": {"containers": [{"name": "training"}]}}
    seen = job(spec={"template": template, "parallelism": 3, "completions": 3})
    assert seen == JobInfo("a-1", "a-0123", 3, pods=3)


def test_a_job_that_is_not_of_our_form_is_not_ours() -> None:
    assert job(metadata={"name": "other", "labels": {}}) is None
    assert job(metadata={"name": "other"}) is None


def test_a_node_is_ready_by_its_condition_and_cordoned_by_its_spec() -> None:
    info = dict.fromkeys(
        (
            *("architecture", "bootID", "containerRuntimeVersion", "kernelVersion"),
            *("kubeProxyVersion", "kubeletVersion", "machineID", "operatingSystem"),
            *("osImage", "systemUUID"),
        ),
        "x",
    )
    document = {
        "metadata": {"name": "node1"},
        "spec": {"unschedulable": True},
        "status": {"conditions": [{"type": "Ready", "status": "Unknown"}], "nodeInfo": info},
    }
    assert api_objects.node_of(client.V1Node.from_dict(document)) == Node(
        "node1", False, False, "x"
    )
    ready = {"type": "Ready", "status": "True"}
    document |= {"spec": {}, "status": {"conditions": [ready]}}
    assert api_objects.node_of(client.V1Node.from_dict(document)) == Node("node1", True, True, "")


def test_a_claim_has_its_modes_and_the_node_that_its_volume_was_made_for() -> None:
    document: dict[str, Any] = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"]},
    }
    read = client.V1PersistentVolumeClaim.from_dict
    assert api_objects.claim_of(read(document)) == ClaimInfo(("ReadWriteOnce",))
    document["metadata"]["annotations"] = {"volume.kubernetes.io/selected-node": "node2"}
    assert api_objects.claim_of(read(document)).node == "node2"


def test_a_pod_has_its_claims() -> None:
    document = {
        "metadata": {"name": "a-1-x", "creationTimestamp": CREATED},
        "spec": {
            "containers": [{"name": "training"}],
            "volumes": [
                {"name": "tmp", "emptyDir": {}},
                {"name": "claim-0", "persistentVolumeClaim": {"claimName": "data"}},
            ],
        },
        "status": {"phase": "Pending"},
    }
    assert api_objects.pod_of(client.V1Pod.from_dict(document)).claims == ("data",)
