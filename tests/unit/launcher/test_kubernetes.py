"""The Kubernetes launcher against an API server in memory: order, repeats, refusals, endings."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from reshape_launcher.kubernetes import launcher as module
from reshape_launcher.kubernetes import naming, place_sidecar
from reshape_launcher.kubernetes.cluster import Node
from reshape_launcher.kubernetes.devices import SimulatedDevices
from reshape_launcher.kubernetes.launcher import KubernetesLauncher
from reshape_launcher.spec import ContainerStatus, LaunchError, LaunchSpec
from tests.fake_cluster import FakeCluster
from tests.unit.launcher.test_kubernetes_manifests import SETTINGS, SPEC

NAME = naming.object_name(SETTINGS.controller, SPEC.job, SPEC.attempt)


@dataclass
class Clock:
    """It goes on when it is told to."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def launcher(
    cluster: FakeCluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KubernetesLauncher]:
    monkeypatch.setattr(module, "REMOVE_MARGIN_S", 0.1)
    monkeypatch.setattr(module, "REMOVE_POLL_S", 0.01)
    monkeypatch.setattr(module, "AWAY_POLL_S", 0.01)
    monkeypatch.setattr(module, "AWAY_PATIENCE_S", 0.1)
    made = KubernetesLauncher(cluster, SETTINGS, SimulatedDevices(2), monotonic_s=clock)
    yield made
    made.close()


def launch(launcher: KubernetesLauncher, spec: LaunchSpec = SPEC) -> None:
    asyncio.run(launcher.launch(spec, "bearer"))


def one(launcher: KubernetesLauncher) -> ContainerStatus:
    (status,) = asyncio.run(launcher.containers())
    return status


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


def test_a_container_runs_until_no_pod_of_it_may_run(
    cluster: FakeCluster, launcher: KubernetesLauncher
) -> None:
    launch(launcher)
    assert one(launcher) == ContainerStatus(SPEC.job, 1, True, host="node1")
    cluster.be(NAME, phase="Running", started=True)
    cluster.seen_jobs[NAME] = replace(cluster.seen_jobs[NAME], over="somebody failed it")
    assert one(launcher).running, "its pod is there all the same"
    cluster.be(NAME, ends_within_s=30)
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
    with pytest.raises(LaunchError, match="look at its node") as caught:
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
    with pytest.raises(OSError, match="it answers"):
        check()
    cluster.refuse["run_in"] = 0
    with pytest.raises(OSError, match="refused"):
        check()
    cluster.be(NAME, phase="Failed")
    assert check() == (True, ""), "nothing runs in a container that has ended"


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


def test_only_nodes_with_the_labels_of_the_cluster_file_are_hosts(cluster: FakeCluster) -> None:
    settings = replace(SETTINGS, node_labels=(("pool", "blue"),))
    asyncio.run(KubernetesLauncher(cluster, settings, SimulatedDevices(2)).hosts())
    assert ("nodes", "pool=blue") in cluster.calls, "the API server picks them"


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


def test_the_first_program_in_a_pod_puts_the_sidecar_in(tmp_path: Path) -> None:
    archive, secret, home = tmp_path / "a.pyz", tmp_path / "secret", tmp_path / "home"
    secret.mkdir()
    (secret / "token").write_text("bearer")
    (secret / "..data").mkdir()
    with zipfile.ZipFile(archive, "w") as packed:
        for name in ("agent/loop.py", "hook/run.py", "init/look.py", "init/supervisor.py"):
            packed.writestr(f"reshape_sidecar/{name}", "")
    code = place_sidecar.main(str(archive), str(secret), str(home))  # type: ignore[no-untyped-call]
    assert code == 0
    token = home / "attempt" / "token"
    assert token.read_text() == "bearer"
    assert token.stat().st_mode & 0o777 == 0o600
    assert (home / "attempt" / "run").is_dir()
    assert (home / "python").exists()


def test_a_worker_is_numbered_whatever_the_images_locale_is(tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text('{"command":["größe"]}', encoding="utf-8")
    program = "import runpy, sys; runpy.run_path(sys.argv[1])['number_worker'](sys.argv[2], 2)"
    given = (place_sidecar.__file__, str(spec))
    old = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    subprocess.run([sys.executable, "-c", program, *given], env=old, check=True)
    assert json.loads(spec.read_text(encoding="utf-8")) == {"command": ["größe"], "worker": 2}


def test_a_python_that_is_too_old_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(place_sidecar, "LEAST", (99, 0))
    assert place_sidecar.main("a", "b", str(tmp_path)) == 1  # type: ignore[no-untyped-call]
    assert "the SideCar needs 99.0 or newer" in capsys.readouterr().err
