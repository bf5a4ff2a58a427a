"""What a node's probe said, and when it is asked again; its pod within the restricted profile."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from reshape_launcher.kubernetes import gpu_probe, naming, sidecar_archive
from reshape_launcher.kubernetes import gpus as holding
from reshape_launcher.kubernetes.gpu_probe import ProbedDevices, offer
from reshape_launcher.kubernetes.gpus import NodeGpus
from reshape_launcher.kubernetes.values import (
    CreatedJob,
    KubernetesError,
    Manifest,
    Node,
    PodInfo,
)
from reshape_sidecar import codec
from reshape_sidecar.gpu import FREE_MEMORY_BYTES, GpuReading, Inventory
from tests.support import pod_security
from tests.support.fake_cluster import FakeCluster
from tests.unit.launcher.test_kubernetes_manifests import SETTINGS, SPEC

NODE = Node("node1", True, True, "boot-1")
FIRST = GpuReading("GPU-1", "NVIDIA H100 80GB HBM3", 0, 80 << 30)
SECOND = replace(FIRST, uuid="GPU-2")


class Probed(FakeCluster):
    """A cluster in memory with probes in place of attempts."""

    def create_job(self, manifest: Manifest) -> CreatedJob:
        return CreatedJob(f"uid-{self._called('create_job', manifest['metadata']['name'])}")

    def pods(self, selector: str) -> tuple[PodInfo, ...]:
        return tuple(self.seen_pods.values())


@dataclass
class World:
    """A cluster in memory, and devices whose clock a test moves."""

    cluster: FakeCluster = field(default_factory=Probed)
    now_s: float = 0.0

    def __post_init__(self) -> None:
        settings = replace(SETTINGS, runtime_class="nvidia")
        self.devices = ProbedDevices(settings, lambda: self.now_s)

    def look(self, *nodes: Node) -> dict[str, NodeGpus]:
        return dict(self.devices.of(self.cluster, nodes or (NODE,)))

    def probes(self) -> list[str]:
        return [name for call, name in self.cluster.calls if call == "create_job"]

    def say(self, message: str, **more: object) -> None:
        """The newest probe's pod ends with this word."""
        name = self.probes()[-1]
        pod = PodInfo(f"{name}-x", name, "node1", "Succeeded", True, message=message)
        self.cluster.seen_pods = {pod.name: replace(pod, **more)}  # type: ignore[arg-type]

    def answer(self, *gpus: GpuReading) -> dict[str, NodeGpus]:
        self.say(codec.dumps(Inventory(gpus)))
        return self.look()


@pytest.fixture
def world() -> World:
    return World()


def test_a_node_has_no_gpus_until_its_probe_has_said_so(world: World) -> None:
    assert world.look() == {}
    assert world.look() == {}
    assert len(world.probes()) == 1, "one probe, however often it is looked"
    both = ("GPU-1", "GPU-2")
    expected = NodeGpus("h100-80gb-hbm3", both, shown=both)
    assert world.answer(FIRST, SECOND) == {"node1": expected}
    assert ("delete_job", world.probes()[0]) in world.cluster.calls
    world.now_s = 3600.0
    world.look()
    assert len(world.probes()) == 1


def test_a_probe_that_is_refused_hides_no_other_node_and_is_tried_again(world: World) -> None:
    world.look()
    known = world.answer(FIRST)
    other = replace(NODE, name="node2")
    world.cluster.refuse["create_job"] = 403
    found = world.look(NODE, other)
    assert found["node1"] == known["node1"]
    assert "refused by the test" in found["node2"].trouble
    del world.cluster.refuse["create_job"]
    world.now_s = gpu_probe.REPROBE_S
    world.look(NODE, other)
    assert len(set(world.probes())) == 3


def test_a_node_that_was_started_again_is_probed_again(world: World) -> None:
    world.look()
    world.answer(FIRST)
    rebooted = replace(NODE, boot_id="boot-2")
    assert world.look(rebooted) == {}
    assert len(set(world.probes())) == 2


def test_a_node_that_takes_no_pod_is_not_probed(world: World) -> None:
    assert world.look(replace(NODE, ready=False)) == {}
    assert world.look(replace(NODE, schedulable=False)) == {}
    assert world.probes() == []


def test_a_gpu_that_others_use_is_left_out_until_it_is_free(world: World) -> None:
    world.look()
    used = replace(SECOND, used_bytes=FREE_MEMORY_BYTES + 1)
    found = world.answer(FIRST, used)["node1"]
    assert found.gpus == ("GPU-1",)
    assert found.trouble == "GPU GPU-2 holds 512 MiB"
    assert found.shown == ("GPU-1", "GPU-2"), "it is there, whoever uses it"
    world.now_s = gpu_probe.REPROBE_S
    world.look()
    mine = replace(FIRST, used_bytes=1 << 33)
    assert world.answer(mine, SECOND)["node1"].gpus == ("GPU-1", "GPU-2"), "the first is our own"


def test_gpus_that_cannot_be_read_or_are_of_another_type_are_left_out() -> None:
    unread = replace(SECOND, used_bytes=None)
    other = GpuReading("GPU-3", "NVIDIA A100", 0, 40 << 30)
    found = offer(Inventory((FIRST, unread, other)))
    assert found.gpus == ("GPU-1",)
    assert found.trouble == "GPU GPU-2 cannot be read; GPU GPU-3 is a a100"


def test_a_gpu_that_a_later_probe_does_not_show_is_not_shown_though_it_was_offered(
    world: World,
) -> None:
    world.look()
    used = replace(SECOND, used_bytes=FREE_MEMORY_BYTES + 1)
    world.answer(FIRST, used)
    world.now_s = gpu_probe.REPROBE_S
    world.look()
    found = world.answer(used)["node1"]
    assert (found.gpus, found.shown) == (("GPU-1",), ("GPU-2",))
    world.now_s *= 2
    world.look()
    world.say("Traceback ...", phase="Failed")
    assert world.look()["node1"].shown is None, "a probe that failed has seen nothing"


@pytest.mark.parametrize(
    ("message", "more", "what"),
    [
        (codec.dumps(Inventory((), "NVML: not found")), {}, "NVML: not found"),
        ("", {"phase": "Failed", "reason": "StartError"}, "the probe failed: StartError"),
        ("Traceback ...", {"phase": "Failed"}, "the probe failed: Traceback ..."),
    ],
)
def test_a_node_whose_probe_finds_nothing_says_why(
    world: World, message: str, more: dict[str, object], what: str
) -> None:
    world.look()
    world.say(message, **more)
    assert world.look() == {"node1": NodeGpus("", (), what)}


def test_a_probe_that_does_not_come_up_is_given_up_and_begun_again(world: World) -> None:
    world.look()
    world.now_s = gpu_probe.PROBE_S
    assert "Kubernetes created no pod" in world.look()["node1"].trouble
    world.now_s += gpu_probe.REPROBE_S
    world.look()
    assert len(set(world.probes())) == 2
    name = world.probes()[-1]
    pod = PodInfo(f"{name}-x", name, trouble="it cannot be scheduled: no room")
    world.cluster.seen_pods = {pod.name: pod}
    world.now_s += gpu_probe.PROBE_S
    assert "it cannot be scheduled: no room" in world.look()["node1"].trouble


def test_a_probe_that_the_api_server_did_not_take_is_asked_for_again(world: World) -> None:
    world.cluster.refuse["create_job"] = 503
    with pytest.raises(KubernetesError):
        world.look()
    world.cluster.refuse.clear()
    world.look()
    world.answer(FIRST)
    assert world.look()["node1"].gpus == ("GPU-1",)


def test_a_probe_is_within_the_restricted_profile_and_no_attempt_of_a_job() -> None:
    settings = replace(SETTINGS, runtime_class="nvidia")
    name = naming.probe_name("node1.example", "run 1")
    made = gpu_probe.probe_job(name, "node1.example", settings, sidecar_archive.Archive(b""))
    spec = made["spec"]["template"]["spec"]
    assert list(pod_security.violations(spec)) == []
    assert spec["runtimeClassName"] == "nvidia"
    assert len(name) <= naming.NAME_CHARS_MAX
    pairs = dict(pair.split("=") for pair in naming.selector(settings.controller).split(","))
    assert not pairs.items() <= made["metadata"]["labels"].items()


def test_every_pod_sees_all_gpus_by_the_runtime() -> None:
    devices = ProbedDevices(replace(SETTINGS, runtime_class="nvidia"))
    assert dict(devices.environment(SPEC))["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert devices.runtime_class == "nvidia"


class Looked(FakeCluster):
    """A cluster with one running pod of ours on node1."""

    def pods(self, selector: str) -> tuple[PodInfo, ...]:
        return (PodInfo("a-1-x", "a-1", "node1", "Running", started=True),)


def test_a_release_is_looked_at_in_a_pod_of_the_same_node() -> None:
    cluster = Looked()
    used = replace(SECOND, used_bytes=3 << 30)
    cluster.answer = codec.dumps(Inventory((FIRST, used)))
    busy_reason = holding.busy_reason
    assert busy_reason(cluster, SETTINGS, "node1", ("GPU-1",)) == ""
    assert busy_reason(cluster, SETTINGS, "node1", ("GPU-1", "GPU-2")) == "GPU GPU-2 holds 3072 MiB"
    assert (
        busy_reason(cluster, SETTINGS, "node1", ("GPU-9",)) == "GPU GPU-9 is not visible on node1"
    )
    assert busy_reason(cluster, SETTINGS, "node2", ("GPU-2",)) == "", (
        "nobody of ours can look there"
    )
    cluster.answer = "what?"
    with pytest.raises(KubernetesError, match="its probe"):
        busy_reason(cluster, SETTINGS, "node1", ("GPU-1",))
    cluster.runs = False
    assert busy_reason(cluster, SETTINGS, "node1", ("GPU-2",)) == ""
