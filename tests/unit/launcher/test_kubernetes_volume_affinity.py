"""Which node a job's volume claims bind it to, if any."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from reshape_launcher.kubernetes.gpus import SimulatedDevices
from reshape_launcher.kubernetes.launcher import KubernetesLauncher
from reshape_launcher.kubernetes.settings import ClaimMount
from reshape_launcher.kubernetes.values import ClaimInfo, KubernetesError
from reshape_launcher.kubernetes.volume_affinity import one_host
from reshape_launcher.spec import LaunchError, OneHost
from tests.support.fake_cluster import FakeCluster
from tests.unit.launcher.test_kubernetes_manifests import SETTINGS, SPEC

ONCE = ClaimInfo(("ReadWriteOnce",))


def cluster(**claims: ClaimInfo) -> FakeCluster:
    return FakeCluster(claims=claims)


def test_claims_for_many_nodes_bind_nobody() -> None:
    assert one_host(cluster(), SETTINGS, SPEC) is None


def test_a_job_stays_where_it_comes_to_first() -> None:
    assert one_host(cluster(storage=ONCE), SETTINGS, SPEC) == OneHost(
        "node1", "its checkpoints are on the claim storage (ReadWriteOnce), bound to node1"
    )


def test_a_claim_whose_volume_was_made_for_a_node_is_there() -> None:
    found = one_host(cluster(storage=replace(ONCE, node="node2")), SETTINGS, SPEC)
    assert found is not None
    assert found.host == "node2"


def test_a_claim_that_another_job_has_is_where_that_job_is() -> None:
    there = cluster(storage=ONCE)
    launcher = KubernetesLauncher(there, SETTINGS, SimulatedDevices(2))
    asyncio.run(launcher.launch(replace(SPEC, job="b-0123456789", host="node2"), "bearer"))
    launcher.close()
    (name,) = there.seen_jobs
    there.be(name, node="node2", claims=("code", "storage"))
    found = one_host(there, SETTINGS, SPEC)
    assert found is not None
    assert found.host == "node2"
    there.be(name, phase="Succeeded")
    assert one_host(there, SETTINGS, SPEC) == replace(
        found, host="node1", reason=found.reason.replace("node2", "node1")
    )


def test_a_claim_that_is_only_read_may_be_for_many_readers() -> None:
    readers = ClaimInfo(("ReadOnlyMany",))
    settings = replace(SETTINGS, mounts=(ClaimMount("data", "/data"),))
    assert one_host(cluster(data=readers), settings, SPEC) is None
    bound = one_host(cluster(data=ONCE), settings, SPEC)
    assert bound is not None
    assert bound.reason.startswith("its files are on the claim data")
    written = replace(settings, mounts=(ClaimMount("data", "/data", read_only=False),))
    assert one_host(cluster(data=readers), written, SPEC) is not None


def test_an_api_server_that_refuses_is_a_launch_that_failed() -> None:
    there = cluster()
    there.refuse["claim"] = 403
    launcher = KubernetesLauncher(there, SETTINGS, SimulatedDevices(2))
    with pytest.raises(LaunchError, match="refused by the test"):
        asyncio.run(launcher.one_host(SPEC))
    launcher.close()
    with pytest.raises(KubernetesError):
        one_host(there, SETTINGS, SPEC)
