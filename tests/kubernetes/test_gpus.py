"""Real GPUs in pods, as far as a machine without them can tell.

NVML is a stand-in, which a runtime handler brings into pods of the runtime class; nodes, pods,
probes, daemon and jobs are real ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kubernetes import stand_in
from tests.kubernetes.grounds import Grounds
from tests.kubernetes.layout import NODES
from tests.kubernetes.namespace import Namespace, eventually
from tests.kubernetes.pod_daemon import PodDaemon, cordon
from tests.kubernetes.stand_in import Gpu
from tests.support.daemon_bed import SAVES

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(1800)]
CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
FIRST, SECOND, OTHERS = Gpu("GPU-n1-0"), Gpu("GPU-n1-1"), Gpu("GPU-n1-2", used_bytes=3 << 30)
ELSEWHERE = Gpu("GPU-n2-0", name="NVIDIA A100-SXM4-40GB")
PROGRAM = SAVES.replace('os.environ["RESHAPE_DEVICES"]', 'os.environ["CUDA_VISIBLE_DEVICES"]')

FAILS_ON_FIRST = """
import os, sys
if "GPU-n1-" in os.environ["CUDA_VISIBLE_DEVICES"]:
    sys.exit("CUDA error: uncorrectable ECC error encountered")
"""


@pytest.fixture
def runtime_class(own_cluster: Grounds, namespace: Namespace) -> Iterator[str]:
    """A class whose handler brings the stand-in; each node has GPUs of its own."""
    stand_in.install(NODES[0], FIRST, SECOND, OTHERS)
    stand_in.install(NODES[1], ELSEWHERE)
    name = f"{namespace.name}-gpus"
    namespace.api.create(CLASSES, {"metadata": {"name": name}, "handler": stand_in.HANDLER})
    yield name
    namespace.api.delete(f"{CLASSES}/{name}")


@pytest.fixture
def first_node(own_cluster: Grounds, namespace: Namespace) -> Iterator[None]:
    """The other is cordoned, so its GPUs are not in the inventory."""
    cordon(namespace, NODES[1].name, True)
    yield
    cordon(namespace, NODES[1].name, False)


@pytest.fixture
def gpus(daemon: PodDaemon, runtime_class: str) -> PodDaemon:
    """A daemon that gives the GPUs of the nodes, not started yet."""
    settings = json.loads(daemon.cluster_file.read_text())
    daemon.cluster_file.write_text(json.dumps(settings | {"runtime_class": runtime_class}))
    daemon.simulated = False
    return daemon


def test_doctor_sees_each_nodes_gpus_and_what_is_missing(gpus: PodDaemon) -> None:
    found = findings(gpus)
    assert "no device plugin" in found["GPU mode"]["detail"]
    assert found["runtime class"]["ok"]
    first = found[f"GPUs of {NODES[0].name}"]
    assert first["detail"] == (
        "2 h100-80gb-hbm3 GPUs: GPU-n1-0, GPU-n1-1; not used: GPU GPU-n1-2 holds 3072 MiB"
    )
    assert found[f"GPUs of {NODES[1].name}"]["detail"] == "1 a100-sxm4-40gb GPUs: GPU-n2-0"
    stand_in.has(NODES[1])
    none = findings(gpus)[f"GPUs of {NODES[1].name}"]
    assert not none["ok"]
    assert "NVML shows no GPU" in none["remedy"]
    gpus.nothing_left()


@pytest.mark.gate
def test_jobs_get_gpus_by_uuid_and_none_that_still_holds_memory(
    gpus: PodDaemon, first_node: None
) -> None:
    gpus.up()
    eventually("its node is probed", lambda: inventory(gpus) == {FIRST.uuid, SECOND.uuid})
    one = submit(gpus, "one", [1, 2])
    gpus.trains(one, 2)
    before = gpus.container(one)
    (pod,) = gpus.pods_of(one)
    assert pod["spec"]["runtimeClassName"].endswith("-gpus")
    assert "on GPU-n1-0,GPU-n1-1" in log(gpus, one)

    stand_in.has(NODES[0], FIRST, Gpu(SECOND.uuid, used_bytes=1 << 30), OTHERS)
    other = submit(gpus, "other", [1], max_wait_s=1)
    gpus.trains(one, 1)
    assert gpus.container(one) == before, "in its living container"
    eventually("the memory is seen", lambda: "holds 1024 MiB" in told(gpus, SECOND.uuid))
    waiting = gpus.view(other)
    assert waiting is not None
    assert waiting.stage == "ready", "initialised, and not granted"
    stand_in.has(NODES[0], FIRST, SECOND, OTHERS)
    gpus.trains(other, 1)
    assert "on GPU-n1-1" in log(gpus, other)

    stand_in.has(NODES[0], FIRST, SECOND, Gpu(OTHERS.uuid))
    eventually("what others have let go of is offered", lambda: OTHERS.uuid in inventory(gpus))
    for job in (one, other):
        assert gpus.reshape("cancel", job).returncode == 0
        gpus.wait(job, "is cancelled", state="cancelled", stage="none")
    gpus.nothing_left()


def test_a_gpu_that_dies_is_lost_until_it_is_back_and_its_job_goes_on_without_it(
    gpus: PodDaemon, first_node: None
) -> None:
    gpus.up()
    eventually("its node is probed", lambda: inventory(gpus) == {FIRST.uuid, SECOND.uuid})
    job = submit(gpus, "one", [1, 2])
    gpus.trains(job, 2)
    stand_in.has(NODES[0], FIRST, OTHERS)  # that somebody uses one has the node probed each minute
    eventually("the next probe misses it", lambda: '"lost"' in told(gpus, SECOND.uuid))
    assert "does not report it; repair it" in told(gpus, SECOND.uuid)
    gpus.trains(job, 1)
    left = gpus.view(job)
    assert left is not None
    assert (left.failures, left.steps_lost) == (0, 0)
    stand_in.has(NODES[0], FIRST, SECOND, OTHERS)
    eventually("the next probe shows it", lambda: '"idle"' in told(gpus, SECOND.uuid))
    assert gpus.reshape("cancel", job).returncode == 0
    gpus.wait(job, "is cancelled", state="cancelled", stage="none")
    gpus.nothing_left()


@pytest.mark.parametrize(
    ("sick", "failures"),
    [("its GPUs are gone", 1), ("its GPUs do not work", 2)],
    ids=["its GPUs are gone", "its GPUs do not work"],
)
def test_a_job_that_cannot_start_on_one_node_trains_on_the_other(
    gpus: PodDaemon, sick: str, failures: int
) -> None:
    """A self-check that fails is one failure; a program starts twice on a node, and each spends a
    retry."""
    gpus.up()
    every = {gpu.uuid for gpu in (FIRST, SECOND, ELSEWHERE)}
    eventually("the nodes are probed", lambda: inventory(gpus) == every)
    if sick == "its GPUs are gone":
        stand_in.has(NODES[0])  # which the next probe would tell
        job = submit(gpus, "one", [1, 2])
    else:
        job = submit(gpus, "one", [1, 2], program=FAILS_ON_FIRST + PROGRAM)
    gpus.trains(job, 1, attempt=2)
    assert gpus.container(job, attempt=2).node == NODES[1].name
    trains = gpus.view(job)
    assert trains is not None
    assert (trains.failures, trains.steps_lost, trains.struck) == (failures, 0, ())
    assert gpus.reshape("cancel", job).returncode == 0
    gpus.wait(job, "is cancelled", state="cancelled", stage="none")
    gpus.nothing_left()


def findings(gpus: PodDaemon) -> dict[str, dict[str, Any]]:
    """What doctor finds, by check."""
    said = gpus.reshape("doctor", *gpus.words(), "-o", "json").stdout
    return {finding["check"]: finding for finding in json.loads(said)["findings"]}


def submit(
    gpus: PodDaemon, name: str, sizes: list[int], *, program: str = PROGRAM, **fields: object
) -> str:
    """A job that trains until it is cancelled."""
    words = ["python", f"{name}.py", "100000"]
    more: dict[str, object] = {"command": words, "framework": "other", "optional_gpus": sizes}
    more |= {"may_restart": True, **fields}
    return gpus.submit_record(name, program, **more)


def inventory(gpus: PodDaemon) -> set[str]:
    return {gpu["id"] for gpu in gpus.json("gpus")["gpus"]}


def told(gpus: PodDaemon, uuid: str) -> str:
    """What the daemon says of a GPU."""
    return json.dumps([gpu for gpu in gpus.json("gpus")["gpus"] if gpu["id"] == uuid])


def log(gpus: PodDaemon, job: str) -> str:
    """What the newest attempt's training has printed."""
    return (gpus.namespace.folder / job / "attempt-1" / "logs" / "training.log").read_text()
