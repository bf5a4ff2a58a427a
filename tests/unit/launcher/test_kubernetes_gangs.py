"""A gang on Kubernetes: a Job for each host, begun and looked at as one attempt."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from typing import Any

import pytest

from reshape_launcher.kubernetes import manifests, naming, pod
from reshape_launcher.kubernetes.gpus import SimulatedDevices
from reshape_launcher.kubernetes.launcher import KubernetesLauncher
from reshape_launcher.kubernetes.pod_mounts import LOGS
from reshape_launcher.kubernetes.settings import ClaimMount
from reshape_launcher.kubernetes.values import ClaimInfo
from reshape_launcher.spec import (
    ContainerStatus,
    HostShare,
    LaunchError,
    RecordRefused,
    worker_token,
)
from reshape_sidecar import codec
from reshape_sidecar.agent.spec import AttemptSpec
from tests.support.fake_cluster import FakeCluster
from tests.unit.launcher.pod_launches import launch
from tests.unit.launcher.test_kubernetes_manifests import SETTINGS, SPEC, made

HERE, THERE = "sim-node1-0", "sim-node2-0"
GANG = replace(
    SPEC,
    workers=4,
    host="node1",
    host_devices=(HERE,),
    shares=(HostShare("node1", 1, (HERE,)), HostShare("node2", 3, (THERE,))),
)
FIRST, SECOND = (
    naming.object_name(SETTINGS.controller, GANG.job, GANG.attempt, number) for number in (0, 1)
)
ONCE = ClaimInfo(("ReadWriteOnce",))


def statuses(launcher: KubernetesLauncher) -> dict[str | None, ContainerStatus]:
    return {status.host: status for status in asyncio.run(launcher.containers())}


def told(cluster: FakeCluster, name: str) -> AttemptSpec:
    data = cluster.secrets[name]["data"]["spec.json"]
    return codec.loads(AttemptSpec, base64.b64decode(data))


def files(cluster: FakeCluster, name: str) -> dict[str, str]:
    data = cluster.secrets[name]["data"]
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


def log_folder(job: dict[str, Any]) -> str:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (mount,) = [m for m in container["volumeMounts"] if m["mountPath"] == LOGS]
    return str(mount.get("subPathExpr") or mount["subPath"])


def test_a_gang_has_an_indexed_job_for_each_host_whose_pods_run_there_alone(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher, GANG)
    assert list(cluster.made_jobs) == [FIRST, SECOND]
    for name, node, pods in ((FIRST, "node1", 1), (SECOND, "node2", 3)):
        job = cluster.made_jobs[name]
        spec = job["spec"]
        assert (spec["completions"], spec["parallelism"]) == (pods, pods)
        assert spec["completionMode"] == "Indexed", "the index is a part of the worker's number"
        assert spec["template"]["spec"]["affinity"] == pod.only_on(node)
        assert job["metadata"]["annotations"][naming.HOST] == node
        labels = [job["metadata"]["labels"], spec["template"]["metadata"]["labels"]]
        ours = naming.attempt_labels(SETTINGS.controller, GANG.job, GANG.attempt)
        assert all(ours.items() <= each.items() for each in labels)


def test_one_headless_service_has_the_pods_of_all_hosts_and_ends_with_the_last_job(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher, GANG)
    (service,) = cluster.services.values()
    pods = [job["spec"]["template"] for job in cluster.made_jobs.values()]
    selector = service["spec"]["selector"].items()
    assert all(selector <= each["metadata"]["labels"].items() for each in pods)
    assert {each["spec"]["subdomain"] for each in pods} == {service["metadata"]["name"]}
    owners = [owner["name"] for owner in service["metadata"]["ownerReferences"]]
    assert owners == [FIRST, SECOND]


def test_a_host_knows_its_own_devices_its_first_worker_and_the_tokens_of_its_own_workers(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher, GANG)
    here, there = told(cluster, FIRST), told(cluster, SECOND)
    assert (here.worker, here.workers, here.host_devices) == (0, 4, (HERE,))
    assert (there.worker, there.workers, there.host_devices) == (1, 4, (THERE,))
    tokens = {f"token-{k}": worker_token("bearer", k) for k in range(4)}
    found = files(cluster, FIRST)
    assert {k: found[k] for k in found if k.startswith("token")} == {"token-0": tokens["token-0"]}
    found = files(cluster, SECOND)
    del tokens["token-0"]
    assert {k: found[k] for k in found if k.startswith("token")} == tokens


def test_no_two_workers_of_a_gang_have_one_folder_for_logs() -> None:
    shares = (HostShare("a", 2), HostShare("b", 2), HostShare("c", 1))
    whole = replace(GANG, host="a", workers=5, shares=shares)
    folders = [log_folder(manifests.job(made(whole.for_worker(k)))) for k in (0, 2, 4)]
    index = "$(JOB_COMPLETION_INDEX)"
    ends = [folder.removeprefix(f"{GANG.job}/attempt-1/") for folder in folders]
    assert ends == [f"worker-{index}/logs", f"worker-2+{index}/logs", "worker-4/logs"]


def test_no_pod_of_a_gang_begins_before_the_objects_of_all_hosts_exist(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher, GANG)
    made = [call for call, _ in cluster.calls]
    last = max(made.index("create_service"), len(made) - 1 - made[::-1].index("create_secret"))
    assert last < made.index("patch_job")
    assert len(cluster.seen_pods) == 2


@pytest.mark.parametrize("call", ["create_secret", "create_service", "patch_job"])
def test_a_launch_that_broke_off_anywhere_is_finished_by_its_repeat(
    cluster: FakeCluster, launcher: KubernetesLauncher, call: str
) -> None:
    cluster.refuse[call] = 503
    with pytest.raises(LaunchError):
        launch(launcher, GANG)
    assert not cluster.seen_pods
    cluster.refuse.clear()
    launch(launcher, GANG)
    assert len(cluster.seen_jobs) == len(cluster.secrets) == len(cluster.seen_pods) == 2


def test_each_host_of_a_gang_has_a_status_and_one_that_ends_leaves_the_other(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher, GANG)
    for name in (FIRST, SECOND):
        cluster.be(name, phase="Running", started=True)
    assert {host: one.running for host, one in statuses(launcher).items()} == {
        "node1": True,
        "node2": True,
    }
    cluster.be(SECOND, phase="Failed", exit_code=137, reason="OOMKilled")
    cluster.seen_jobs[SECOND] = replace(cluster.seen_jobs[SECOND], over="BackoffLimitExceeded")
    found = statuses(launcher)
    assert found["node1"].running
    assert (found["node2"].running, found["node2"].exit_code) == (False, 137)


def test_a_part_whose_node_does_not_answer_counts_as_running(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher, GANG)
    cluster.be(FIRST, phase="Running", started=True)
    cluster.be(SECOND, phase="Running", started=True, deletion_grace_s=30)
    cluster.seen_jobs[SECOND] = replace(cluster.seen_jobs[SECOND], over="DeadlineExceeded")
    assert statuses(launcher)["node2"].running


def test_a_gang_that_has_no_pods_yet_has_its_hosts(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher, GANG)
    cluster.seen_pods.clear()
    assert set(statuses(launcher)) == {"node1", "node2"}


def test_a_part_that_another_controller_suspends_has_ended(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher, GANG)
    cluster.be(FIRST, phase="Running", started=True)
    cluster.seen_jobs[SECOND] = replace(cluster.seen_jobs[SECOND], suspended=True)
    assert statuses(launcher)["node2"].running, "its pod is there yet"
    del cluster.seen_pods[f"{SECOND}-x"]
    found = statuses(launcher)
    assert found["node1"].running
    assert not found["node2"].running
    assert not found["node2"].suspended
    assert "suspended by another controller" in found["node2"].reason


def test_a_release_is_looked_at_in_the_pods_of_the_host_asked_for_alone(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher, GANG)
    for name in (FIRST, SECOND):
        cluster.be(name, phase="Running", started=True)
    cluster.answers = {f"{SECOND}-x": '{"pids": [7]}'}
    look = (GANG.job, 1, 3)
    assert asyncio.run(launcher.check_release(*look, (HERE,), "node1")).empty
    check = asyncio.run(launcher.check_release(*look, (THERE,), "node2"))
    assert not check.empty
    assert "7" in check.reason
    asked = [name.split()[0] for call, name in cluster.calls if call == "run_in"]
    assert asked == [f"{FIRST}-x", f"{SECOND}-x"]


def test_a_removal_ends_the_pods_of_all_hosts_with_the_first_worker_first(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher, GANG)
    with pytest.raises(LaunchError, match="still exists"):
        asyncio.run(launcher.remove(GANG.job, 1, 0.0))
    deleted = [name for call, name in cluster.calls if call == "delete_pod"]
    assert deleted == [f"{FIRST}-x 1", f"{SECOND}-x 1"]
    cluster.be(FIRST, phase="Failed")
    with pytest.raises(LaunchError, match="still exists"):
        asyncio.run(launcher.remove(GANG.job, 1, 0.0))
    cluster.be(SECOND, phase="Failed")
    asyncio.run(launcher.remove(GANG.job, 1, 0.0))
    assert not any(status.running for status in statuses(launcher).values())
    assert all(job.over for job in cluster.seen_jobs.values())


def test_a_removal_on_one_host_waits_for_no_other(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher, GANG)
    cluster.be(FIRST, phase="Failed")
    cluster.be(SECOND, phase="Running", started=True)
    asyncio.run(launcher.remove(GANG.job, 1, 0.0, ("node1",)))
    assert {host: one.running for host, one in statuses(launcher).items()} == {
        "node1": False,
        "node2": True,
    }
    assert not [call for call in cluster.calls if call[0] == "delete_pod"]
    assert {name: job.over is None for name, job in cluster.seen_jobs.items()} == {
        FIRST: False,
        SECOND: True,
    }


def test_a_command_by_hand_ends_the_jobs_of_all_hosts(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher, GANG)
    assert statuses(launcher)
    assert launcher.end_by_hand([(GANG.job, 1)]).endswith(f"delete job {FIRST} {SECOND}")


@pytest.mark.parametrize(
    ("claims", "field", "mode"),
    [
        ({"code": ONCE}, "code", "ReadWriteMany"),
        ({"storage": ONCE}, "checkpoints", "ReadWriteMany"),
        ({"data": ONCE}, "dataset", "ReadOnlyMany"),
        ({"tools": ONCE}, "mounts", "ReadOnlyMany"),
    ],
)
def test_a_claim_that_not_every_host_of_the_gang_reaches_is_refused_by_its_field(
    claims: dict[str, ClaimInfo], field: str, mode: str
) -> None:
    cluster = FakeCluster(claims=claims)
    settings = replace(SETTINGS, mounts=(ClaimMount("tools", "/tools"),))
    launcher = KubernetesLauncher(cluster, settings, SimulatedDevices(2))
    with pytest.raises(RecordRefused) as refused:
        asyncio.run(launcher.one_host(replace(GANG, dataset="claim:data")))
    launcher.close()
    assert not refused.value.retryable
    assert refused.value.field == field
    (name,) = claims
    assert f"claim {name} (ReadWriteOnce)" in refused.value.what
    assert "node1 and node2" in refused.value.what
    assert mode in refused.value.remedy
    assert "span: never" in refused.value.remedy


def test_claims_for_many_nodes_are_for_every_host_of_a_gang(launcher: KubernetesLauncher) -> None:
    assert asyncio.run(launcher.one_host(GANG)) is None


def test_no_gang_is_launched_under_a_queue_of_the_cluster_file(cluster: FakeCluster) -> None:
    plain = KubernetesLauncher(cluster, SETTINGS, SimulatedDevices(2))
    assert plain.no_gang() is None
    queued = replace(SETTINGS, labels=((naming.QUEUE, "team-a"),))
    launcher = KubernetesLauncher(cluster, queued, SimulatedDevices(2))
    refused = launcher.no_gang()
    plain.close()
    launcher.close()
    assert refused is not None
    assert refused.field == "span"
    assert "team-a" in refused.what
    assert naming.QUEUE in refused.remedy


def test_nothing_stays_of_a_gang_whose_jobs_a_webhook_puts_into_a_queue(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    cluster.queue = "team-a"
    with pytest.raises(LaunchError, match="span: the queue team-a") as refused:
        launch(launcher, GANG)
    assert not refused.value.retryable
    assert not cluster.seen_jobs
    assert not cluster.seen_pods
