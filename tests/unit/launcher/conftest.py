"""The Kubernetes launcher on an API server in memory, with a clock that is told to go on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reshape_launcher.kubernetes import launcher as module
from reshape_launcher.kubernetes.gpus import SimulatedDevices
from reshape_launcher.kubernetes.launcher import KubernetesLauncher
from tests.support.fake_cluster import FakeCluster
from tests.unit.launcher.pod_launches import Clock
from tests.unit.launcher.test_kubernetes_manifests import SETTINGS


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
    monkeypatch.setattr(module, "AWAY_WAIT_S", 0.1)
    made = KubernetesLauncher(cluster, SETTINGS, SimulatedDevices(2), monotonic_s=clock)
    yield made
    made.close()
