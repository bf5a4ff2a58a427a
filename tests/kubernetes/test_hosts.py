"""Which nodes of a cluster are a controller's."""

from __future__ import annotations

import json

import pytest

from tests.kubernetes.namespace import eventually
from tests.kubernetes.pod_daemon import PodDaemon

pytestmark = pytest.mark.kubernetes


def test_a_daemon_has_the_nodes_with_the_labels_of_its_cluster_file_and_no_others(
    daemon: PodDaemon,
) -> None:
    first, *others = daemon.namespace.grounds.nodes
    assert others
    settings = json.loads(daemon.cluster_file.read_text())
    settings["node_labels"] = {"kubernetes.io/hostname": first}
    daemon.cluster_file.write_text(json.dumps(settings))
    daemon.up()
    gpus = eventually("its GPUs", lambda: daemon.json("gpus")["gpus"])
    assert {gpu["host"] for gpu in gpus} == {first}
    checked = daemon.reshape("doctor", *daemon.words(), "--simulated-gpus", "4", "-o", "json")
    assert f"1 of 1 ready, of those with kubernetes.io/hostname={first}" in checked.stdout
