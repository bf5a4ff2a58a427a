"""What the Kubernetes launcher says is there: containers and their troubles, releases, hosts."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from pathlib import Path

import pytest

from reshape_launcher.kubernetes import pod
from reshape_launcher.kubernetes.gpus import SimulatedDevices
from reshape_launcher.kubernetes.launcher import KubernetesLauncher
from reshape_launcher.kubernetes.values import KubernetesError, Node, Taint
from reshape_launcher.spec import ClusterUnseen, ContainerStatus, LaunchError
from tests.support.fake_cluster import FakeCluster
from tests.unit.launcher.pod_launches import NAME, Clock, launch, one
from tests.unit.launcher.test_kubernetes_manifests import SETTINGS, SPEC


def test_a_container_runs_until_no_pod_of_it_may_run(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher)
    assert one(launcher) == ContainerStatus(SPEC.job, 1, True, host="node1")
    cluster.be(NAME, phase="Running", started=True)
    cluster.seen_jobs[NAME] = replace(cluster.seen_jobs[NAME], over="somebody failed it")
    assert one(launcher).running, "its pod is there all the same"
    cluster.be(NAME, deletion_grace_s=30)
    assert one(launcher).running, "deleted is not gone"
    cluster.be(NAME, phase="Failed", exit_code=137, reason="OOMKilled: exit code 137")
    ended = ContainerStatus(SPEC.job, 1, False, 137, "OOMKilled: exit code 137", "node1")
    assert one(launcher) == ended


def test_a_pod_that_somebody_deleted_is_an_end_with_a_reason(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher)
    cluster.seen_pods.clear()
    assert one(launcher).running, "that no pod is there yet is not the end of its Job"
    cluster.seen_jobs[NAME] = replace(cluster.seen_jobs[NAME], over="BackoffLimitExceeded")
    assert one(launcher) == ContainerStatus(
        SPEC.job, 1, False, None, "its pod is gone (BackoffLimitExceeded)"
    )


PULL, UNFIT = "ImagePullBackOff: not found", "CreateContainerConfigError: failed to create"


NO_ROOM = "it cannot be scheduled: no room"


@pytest.mark.parametrize(
    ("trouble", "for_s", "ended"),
    [
        (PULL, 10.0, False),
        (PULL, 21.0, True),
        (UNFIT, 60.0, False),
        (UNFIT, 121.0, True),
        (NO_ROOM, 61.0, False),
        (NO_ROOM, 301.0, True),
        ("", 3000.0, False),
    ],
)
def test_a_pod_that_will_not_come_up_is_given_up_in_its_own_words(
    cluster: FakeCluster,
    launcher: KubernetesLauncher,
    clock: Clock,
    trouble: str,
    for_s: float,
    ended: bool,
) -> None:
    launch(launcher)
    cluster.be(NAME, trouble=trouble)
    assert one(launcher).running
    clock.now_s += for_s
    assert one(launcher).running
    assert one(launcher).reason == trouble
    assert (cluster.seen_jobs[NAME].over is not None) == ended
    if ended:
        cluster.seen_pods.clear()
        assert one(launcher).reason == trouble
        assert not one(launcher).lasting, "another attempt may fare better"
        assert one(launcher).unscheduled == (trouble == NO_ROOM)


FORBIDDEN = "exceeded quota: none"


def test_a_job_for_which_no_pod_is_made_says_why_and_is_given_up(
    cluster: FakeCluster, launcher: KubernetesLauncher, clock: Clock
) -> None:
    launch(launcher)
    cluster.seen_pods.clear()
    assert one(launcher).reason == "its pod does not exist yet", "nothing speaks against it"
    clock.now_s += 1000.0
    cluster.warnings["Job"] = FORBIDDEN
    told = f"Kubernetes creates no pod for it: {FORBIDDEN}"
    assert (one(launcher).running, one(launcher).reason) == (True, told)
    clock.now_s += 299.0
    one(launcher)
    assert cluster.seen_jobs[NAME].over is None
    clock.now_s += 2.0
    one(launcher)
    assert cluster.seen_jobs[NAME].over is not None
    ended = one(launcher)
    assert (ended.running, ended.reason, ended.lasting) == (False, told, False)
    assert ended.unscheduled, "a quota has no room either"


def test_workers_of_which_not_all_are_made_say_why_and_are_given_up(
    cluster: FakeCluster, launcher: KubernetesLauncher, clock: Clock
) -> None:
    launch(launcher, replace(SPEC, workers=2))
    cluster.be(NAME, phase="Running", started=True)
    assert one(launcher) == ContainerStatus(SPEC.job, 1, True, host="node1")
    cluster.warnings["Job"] = FORBIDDEN
    told = f"Kubernetes creates no pod for it beside 1 of 2: {FORBIDDEN}"
    assert (one(launcher).running, one(launcher).reason) == (True, told)
    cluster.seen_jobs[NAME] = replace(cluster.seen_jobs[NAME], has_ended_pod=True)
    assert one(launcher).reason == "", "a pod that has ended is not made again"
    cluster.seen_jobs[NAME] = replace(cluster.seen_jobs[NAME], has_ended_pod=False)
    one(launcher)
    clock.now_s += 301.0
    one(launcher)
    assert cluster.seen_jobs[NAME].over is not None


def test_why_no_pod_is_made_is_asked_of_no_other_job(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher)
    cluster.warnings["Job"] = FORBIDDEN
    assert one(launcher).reason == ""
    cluster.seen_pods.clear()
    job = replace(cluster.seen_jobs[NAME], suspended=True, released=False)
    cluster.seen_jobs[NAME] = job
    assert one(launcher).reason == "its Job is not released yet"


def test_a_pod_that_its_node_does_not_start_says_why_until_it_does(
    cluster: FakeCluster, launcher: KubernetesLauncher, clock: Clock
) -> None:
    launch(launcher)
    cluster.warnings["Pod"] = "FailedMount: no such folder"
    assert one(launcher).reason == "its node does not start it: FailedMount: no such folder"
    clock.now_s += 290.0
    one(launcher)
    cluster.warnings.clear()  # the newest event is another: its image is pulled
    assert one(launcher).reason == ""
    clock.now_s += 290.0
    cluster.warnings["Pod"] = "FailedMount: no such folder"
    assert one(launcher).running
    assert cluster.seen_jobs[NAME].over is None, "its time begins anew"
    clock.now_s += 301.0
    one(launcher)
    assert cluster.seen_jobs[NAME].over is not None


def test_without_the_right_to_see_why_the_remedy_is_told(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher)
    cluster.seen_pods.clear()
    cluster.refuse["newest_warning"] = 403
    assert f"`kubectl describe job {NAME}`" in one(launcher).reason


def test_the_patience_with_a_trouble_begins_when_it_is_first_seen(
    cluster: FakeCluster, launcher: KubernetesLauncher, clock: Clock
) -> None:
    launch(launcher)
    for trouble, for_s in (("", 600.0), (PULL, 15.0), ("", 1.0), (PULL, 15.0), (UNFIT, 100.0)):
        cluster.be(NAME, trouble=trouble)
        one(launcher)
        clock.now_s += for_s
        one(launcher)
        assert cluster.seen_jobs[NAME].over is None, trouble
    cluster.be(NAME, trouble=PULL)
    one(launcher)
    clock.now_s += 21.0
    cluster.be(NAME, trouble="ErrImagePull: not found")
    one(launcher)
    assert cluster.seen_jobs[NAME].over is not None, "it is the same trouble in other words"


def test_an_image_that_is_nowhere_is_told_as_lasting_also_when_its_pod_is_gone(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher)
    cluster.be(NAME, trouble="ErrImagePull: code = NotFound", lasting=True)
    assert one(launcher).running
    cluster.seen_pods.clear()
    assert not one(launcher).running
    assert one(launcher).lasting


def test_a_release_is_looked_at_inside_the_container(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    def check() -> tuple[bool, str]:
        found = asyncio.run(launcher.check_release(SPEC.job, 1, 3, ("sim-node1-0",)))
        return found.empty, found.reason

    launch(launcher)
    cluster.runs = False
    assert check() == (True, ""), "a container that never started holds nothing"
    cluster.runs = True
    assert not cluster.seen_pods[f"{NAME}-x"].started, "its status lags behind"
    cluster.answer = '{"pids": [12, 13]}'
    assert check() == (False, f"processes 12, 13 of {SPEC.job} are still alive")
    assert cluster.calls[-1][1].endswith(f"--job {SPEC.job} --attempt 1 --generation 3")
    cluster.answer = '{"pids": []}'
    assert check() == (True, "")
    cluster.answer = "Traceback"
    with pytest.raises(OSError, match="bad answer"):
        check()
    cluster.refuse["run_in"] = 0
    with pytest.raises(OSError, match="refused"):
        check()
    cluster.be(NAME, phase="Failed")
    assert check() == (True, ""), "nothing runs in a container that has ended"


def test_a_release_waits_for_lists_of_pods_and_fails_for_a_container_that_does_not_answer(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher)
    look = ("j", 1, 3, ("sim-node1-0",))
    for status in (0, 429, 500):
        cluster.refuse = {"pods": status}
        with pytest.raises(ClusterUnseen, match="refused by the test"):
            asyncio.run(launcher.check_release(*look))
    cluster.refuse = {"pods": 403}
    with pytest.raises(KubernetesError):
        asyncio.run(launcher.check_release(*look))
    cluster.refuse = {"run_in": 500}
    with pytest.raises(KubernetesError):  # its node may be gone for good
        asyncio.run(launcher.check_release(SPEC.job, *look[1:]))


def test_logs_are_read_where_this_machine_has_the_storage(
    cluster: FakeCluster, launcher: KubernetesLauncher, tmp_path: Path
) -> None:
    assert launcher.log_path(SPEC.job, 1) is None
    settings = replace(SETTINGS, storage_folder=str(tmp_path))
    made = KubernetesLauncher(cluster, settings, SimulatedDevices(2))
    assert made.log_path(SPEC.job, 1) is None, "there is none yet"
    folder = tmp_path / SPEC.job / "attempt-1" / "logs"
    folder.mkdir(parents=True)
    assert made.log_path(SPEC.job, 1) == str(folder)
    made.close()


def test_what_cannot_be_listed_is_not_called_gone(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher)
    for call in ("jobs", "pods"):
        cluster.refuse = {call: 0}
        with pytest.raises(OSError, match="refused"):
            asyncio.run(launcher.containers())


def test_every_node_has_its_gpus_under_names_of_its_own(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    cluster.node_list.append(Node("node2", False, False, "boot-2"))
    first, second = asyncio.run(launcher.hosts())
    assert (first.name, first.gpus) == ("node1", ("sim-node1-0", "sim-node1-1"))
    assert (second.ready, second.schedulable) == (False, False)
    assert not set(first.gpus) & set(second.gpus)


def test_a_server_that_does_not_tell_its_version_has_its_hosts_all_the_same(
    cluster: FakeCluster, launcher: KubernetesLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> str:
        raise KubernetesError("version", 403, "forbidden")

    monkeypatch.setattr(cluster, "version", refused)
    assert [host.name for host in asyncio.run(launcher.hosts())] == ["node1"]


def test_only_nodes_with_the_labels_of_the_cluster_file_are_hosts(cluster: FakeCluster) -> None:
    settings = replace(SETTINGS, node_labels=(("pool", "blue"),))
    asyncio.run(KubernetesLauncher(cluster, settings, SimulatedDevices(2)).hosts())
    assert ("nodes", "pool=blue") in cluster.calls, "the API server picks them"


def suspend(cluster: FakeCluster, **changes: object) -> None:
    """What another controller does to the Job, whose pod ends."""
    job = replace(cluster.seen_jobs[NAME], suspended=True)
    cluster.seen_jobs[NAME] = replace(job, **changes)  # type: ignore[arg-type]


def test_a_job_that_another_controller_suspends_is_suspended_once_its_pod_is_gone(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher)
    cluster.be(NAME, phase="Running", started=True, deletion_grace_s=30)
    suspend(cluster)
    assert (one(launcher).running, one(launcher).suspended) == (True, ""), "its pod may still run"
    cluster.seen_pods.clear()
    seen = one(launcher)
    assert seen.running
    assert f"its Job is suspended by another controller; it goes on once {NAME}" in seen.suspended
    launch(launcher)
    assert cluster.seen_jobs[NAME].suspended, "a repeat of the launch does not resume it"
    cluster.seen_jobs[NAME] = replace(cluster.seen_jobs[NAME], suspended=False)
    assert one(launcher).suspended == ""


def test_an_ended_pod_of_a_suspended_job_is_not_the_end_of_its_container(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher)
    cluster.be(NAME, phase="Succeeded", started=True, exit_code=0)
    suspend(cluster)
    assert (one(launcher).running, bool(one(launcher).suspended)) == (True, True)


def test_a_pod_of_before_the_resume_neither_ends_the_new_one_nor_its_container(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher)
    cluster.be(NAME, phase="Succeeded", started=True, exit_code=0, created_at_s=10.0)
    cluster.seen_jobs[NAME] = replace(cluster.seen_jobs[NAME], started_at_s=math.inf)
    assert one(launcher).reason == "its pod does not exist yet", "it was resumed a moment ago"
    cluster.seen_jobs[NAME] = replace(cluster.seen_jobs[NAME], started_at_s=20.0)
    new = replace(cluster.seen_pods[f"{NAME}-x"], name="new", phase="Running", created_at_s=21.0)
    cluster.seen_pods["new"] = new
    assert one(launcher).running
    assert not [call for call, _ in cluster.calls if call == "delete_pod"]


def test_a_job_with_a_queue_is_left_suspended_and_waits_for_its_admission(
    cluster: FakeCluster, launcher: KubernetesLauncher, clock: Clock
) -> None:
    cluster.queue = "team-a"
    launch(launcher)
    assert cluster.seen_jobs[NAME].suspended
    assert not cluster.seen_pods
    clock.now_s += 100_000.0
    assert one(launcher).suspended == (
        "waits for admission by its queue team-a: its Job is suspended"
    )
    assert one(launcher).running


def test_a_gated_pod_waits_for_its_admission_however_long_that_takes(
    cluster: FakeCluster, launcher: KubernetesLauncher, clock: Clock
) -> None:
    launch(launcher)
    cluster.be(NAME, gated=True)
    clock.now_s += 100_000.0
    assert "its pod waits for admission" in one(launcher).suspended
    assert cluster.seen_jobs[NAME].over is None
    cluster.be(NAME, gated=False)
    assert one(launcher).suspended == ""


def test_a_launch_that_is_not_complete_is_not_a_suspension(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    cluster.refuse["create_secret"] = 503
    with pytest.raises(LaunchError):
        launch(launcher)
    assert (one(launcher).reason, one(launcher).suspended) == ("its Job is not released yet", "")


@pytest.mark.parametrize(
    ("node", "closed"),
    [
        (Node("node1", True, True, "b"), ""),
        (Node("node1", False, True, "b"), "its node is not ready"),
        (
            Node("node1", True, True, "b", (Taint("dedicated", "web", "NoSchedule"),)),
            "its node has the taint dedicated=web:NoSchedule",
        ),
        (
            Node("node1", True, True, "b", (Taint("broken", "", "NoExecute"),)),
            "its node has the taint broken:NoExecute",
        ),
        (Node("node1", True, True, "b", (Taint("slow", "", "PreferNoSchedule"),)), ""),
        (Node("node1", True, True, "b", (Taint("gpu", "yes", "NoSchedule"),)), ""),
        (
            Node("node1", True, False, "b", (Taint(pod.CORDON, "", "NoSchedule"),)),
            "",
        ),
    ],
)
def test_a_node_that_takes_no_pod_of_ours_is_closed_and_says_why(
    cluster: FakeCluster, node: Node, closed: str
) -> None:
    tolerant = replace(SETTINGS, tolerated_taints=("gpu",))
    launcher = KubernetesLauncher(cluster, tolerant, SimulatedDevices(2))
    cluster.node_list = [node]
    (seen,) = asyncio.run(launcher.hosts())
    launcher.close()
    assert seen.closed == closed
