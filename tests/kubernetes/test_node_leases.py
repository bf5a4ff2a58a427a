"""Of two controllers one has a node's GPUs, also while it is cut off; and what doctor tries."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape_launcher.kubernetes.node_leases import LOOK_EVERY_S
from tests.kubernetes.namespace import Namespace, eventually
from tests.kubernetes.pod_daemon import PodDaemon

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]
LEASES = "/apis/coordination.k8s.io/v1"


@pytest.fixture
def second(namespace: Namespace, tmp_path: Path) -> Iterator[PodDaemon]:
    """Another controller with a store of its own, in the same namespace."""
    folder = tmp_path / "second"
    folder.mkdir()
    made = PodDaemon(folder, namespace)
    write(made, controller="second")
    try:
        yield made
    finally:
        made.close()


def write(daemon: PodDaemon, **fields: object) -> None:
    settings = json.loads(daemon.cluster_file.read_text())
    daemon.cluster_file.write_text(json.dumps(settings | fields))


def nodes_of(daemon: PodDaemon) -> set[str]:
    """Nodes on which a daemon has GPUs."""
    return {gpu.host for gpu in daemon.client().gpus()}


def test_a_controller_that_is_cut_off_keeps_its_nodes_until_a_person_gives_them_away(
    daemon: PodDaemon, second: PodDaemon, one_node: None
) -> None:
    ours, other = daemon.namespace.grounds.nodes[:2]
    daemon.up()
    job = daemon.submit_counting("stays", [4], 100_000)
    daemon.trains(job, 4)
    daemon.stop(signal.SIGKILL)
    second.up()
    time.sleep(LOOK_EVERY_S + 5)
    assert nodes_of(second) == set(), "no GPU is in two hands"
    assert daemon.running_attempts(job) == {1}
    said = second.log.read_text()
    assert "host-not-used" in said
    assert f"controller reshape of namespace {daemon.namespace.name}" in said

    path = daemon.namespace.path("leases", f"reshape-node-{other}", group=LEASES)
    daemon.api.delete(path)
    eventually("the second has that node", lambda: nodes_of(second) == {other})
    assert ours not in nodes_of(second)


def test_doctor_tries_the_image_and_the_address_in_a_pod(
    daemon: PodDaemon, absent_image: str
) -> None:
    def checked(*words: str) -> dict[str, bool]:
        done = daemon.reshape(
            "doctor", *daemon.words(), "--simulated-gpus", "4", "-o", "json", *words
        )
        return {found["check"]: found["ok"] for found in json.loads(done.stdout)["findings"]}

    right = checked()
    assert (right["image"], right["address from a pod"]) == (True, True)
    wrong = checked("--sidecar-url", f"http://{daemon.bind.partition(':')[0]}:9")
    assert (wrong["image"], wrong["address from a pod"]) == (True, False)
    write(daemon, image=absent_image)
    assert checked()["image"] is False
