"""The Kubernetes launcher against an API server in memory: order, repeats, refusals, removals."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from pathlib import Path

import pytest

from reshape_launcher.kubernetes import launcher as module
from reshape_launcher.kubernetes.launcher import KubernetesLauncher
from reshape_launcher.spec import ContainerStatus, LaunchError
from tests.support.fake_cluster import FakeCluster
from tests.unit.launcher.pod_launches import NAME, launch, one
from tests.unit.launcher.test_kubernetes_manifests import SPEC


def test_the_pod_is_made_last_when_all_that_it_mounts_is_there(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher)
    made = [call for call, _ in cluster.calls]
    assert made == ["create_config_map", "create_job", "create_secret", "patch_job"]
    owner = cluster.secrets[NAME]["metadata"]["ownerReferences"][0]
    assert owner["uid"] == f"uid-{NAME}"
    assert base64.b64decode(cluster.secrets[NAME]["data"]["token"]) == b"bearer"


@pytest.mark.parametrize("call", ["create_job", "create_secret", "patch_job"])
def test_a_launch_that_broke_off_anywhere_is_finished_by_its_repeat(
    cluster: FakeCluster, launcher: KubernetesLauncher, call: str
) -> None:
    cluster.refuse[call] = 503
    with pytest.raises(LaunchError) as caught:
        launch(launcher)
    assert caught.value.retryable
    cluster.refuse.clear()
    launch(launcher)
    assert len(cluster.seen_jobs) == len(cluster.secrets) == len(cluster.seen_pods) == 1
    assert not cluster.seen_jobs[NAME].suspended


def test_a_launch_waits_for_an_api_server_that_is_away(
    cluster: FakeCluster, launcher: KubernetesLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AWAY_PATIENCE_S", 60.0)
    cluster.refuse["create_job"] = 0

    async def outage() -> None:
        launching = asyncio.create_task(launcher.launch(SPEC, "bearer"))
        while len(cluster.calls) < 6:
            await asyncio.sleep(0.01)
        assert not launching.done()
        cluster.refuse.clear()
        await launching

    asyncio.run(outage())
    assert len(cluster.seen_pods) == 1


def test_a_removal_goes_on_after_an_outage(
    cluster: FakeCluster, launcher: KubernetesLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REMOVE_MARGIN_S", 60.0)
    launch(launcher)
    cluster.refuse["pods"] = 503

    async def outage() -> None:
        removal = asyncio.create_task(launcher.remove(SPEC.job, 1, 1.0))
        before = len(cluster.calls)
        while len(cluster.calls) < before + 4:
            await asyncio.sleep(0.01)
        cluster.refuse.clear()
        while not any(call == "delete_pod" for call, _ in cluster.calls):
            await asyncio.sleep(0.01)
        cluster.be(NAME, phase="Failed")
        await removal

    asyncio.run(outage())
    assert not one(launcher).running


def test_a_removal_that_is_not_allowed_says_so(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher)
    cluster.refuse["delete_pod"] = 403
    with pytest.raises(LaunchError, match="refused by the test"):
        asyncio.run(launcher.remove(SPEC.job, 1, 1.0))


def test_a_manifest_that_the_api_refuses_is_not_tried_again(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    cluster.refuse["create_job"] = 422
    with pytest.raises(LaunchError, match="refused by the test") as caught:
        launch(launcher)
    assert not caught.value.retryable


def test_a_job_of_several_workers_gets_its_service_before_its_pods(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher, replace(SPEC, workers=2))
    made = [call for call, _ in cluster.calls]
    assert made.index("create_job") < made.index("create_service") < made.index("patch_job")
    assert list(cluster.services) == [f"workers-{NAME}"]


def test_the_pods_of_other_workers_end_soon_after_one_has_ended(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher, replace(SPEC, workers=2))
    cluster.be(NAME, phase="Running", started=True)
    cluster.seen_pods["other"] = replace(cluster.seen_pods[f"{NAME}-x"], name="other")
    assert one(launcher).running
    assert not [call for call in cluster.calls if call[0] == "delete_pod"]
    cluster.seen_pods["other"] = replace(
        cluster.seen_pods["other"], phase="Failed", exit_code=137, reason="killed"
    )
    assert one(launcher).running, "a pod of it is there all the same"
    assert ("delete_pod", f"{NAME}-x 10") in cluster.calls
    cluster.be(NAME, phase="Succeeded", exit_code=0)
    assert one(launcher) == ContainerStatus(SPEC.job, 1, False, 137, "killed", "node1")


def test_a_worker_s_pod_that_came_and_went_between_two_looks_is_not_overlooked(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher, replace(SPEC, workers=2))
    cluster.be(NAME, phase="Running", started=True)
    cluster.seen_jobs[NAME] = replace(cluster.seen_jobs[NAME], bereft=True)
    assert one(launcher).running
    assert ("delete_pod", f"{NAME}-x 10") in cluster.calls


def test_removing_waits_for_the_pods_end_and_keeps_the_job_as_its_sentinel(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher)
    cluster.be(NAME, phase="Running", started=True)

    async def remove() -> None:
        removal = asyncio.create_task(launcher.remove(SPEC.job, 1, 7.2))
        while ("delete_pod", f"{NAME}-x 8") not in cluster.calls:
            await asyncio.sleep(0.01)
        assert not removal.done()
        cluster.be(NAME, phase="Succeeded", exit_code=0)
        await removal

    asyncio.run(remove())
    assert not one(launcher).running
    launch(launcher)
    assert not one(launcher).running, "what has ended is not launched again"
    asyncio.run(launcher.remove(SPEC.job, 1, 0.0))


def test_no_pod_is_forgotten_by_the_api_while_its_processes_may_run(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher)
    with pytest.raises(LaunchError, match="check its node") as caught:
        asyncio.run(launcher.remove(SPEC.job, 1, 0.0))
    assert caught.value.retryable
    assert ("delete_pod", f"{NAME}-x {module.GRACE_MIN_S}") in cluster.calls


def test_a_launch_that_never_came_to_a_pod_is_taken_away_whole(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    cluster.refuse["create_secret"] = 503
    with pytest.raises(LaunchError):
        launch(launcher)
    asyncio.run(launcher.remove(SPEC.job, 1, 1.0))
    assert cluster.seen_jobs == {}


def test_the_device_truth_of_this_machine_is_in_the_pod(
    cluster: FakeCluster, launcher: KubernetesLauncher, tmp_path: Path
) -> None:
    truth = tmp_path / "truth.json"
    with pytest.raises(LaunchError, match="device truth"):
        launch(launcher, replace(SPEC, device_truth=str(truth)))
    truth.write_text('{"seconds_per_step": {}}')
    launch(launcher, replace(SPEC, device_truth=str(truth)))
    data = cluster.secrets[NAME]["data"]
    assert base64.b64decode(data["device-truth.json"]) == truth.read_bytes()
    assert b"/reshape/attempt/device-truth.json" in base64.b64decode(data["spec.json"])
