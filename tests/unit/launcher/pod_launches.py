"""A launch of one job by the Kubernetes launcher, for tests of it; its fixtures are in conftest."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from reshape_launcher.kubernetes import naming
from reshape_launcher.kubernetes.launcher import KubernetesLauncher
from reshape_launcher.spec import ContainerStatus, LaunchSpec
from tests.unit.launcher.test_kubernetes_manifests import SETTINGS, SPEC

NAME = naming.object_name(SETTINGS.controller, SPEC.job, SPEC.attempt)


@dataclass
class Clock:
    """It goes on when it is told to."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def launch(launcher: KubernetesLauncher, spec: LaunchSpec = SPEC) -> None:
    asyncio.run(launcher.launch(spec, "bearer"))


def one(launcher: KubernetesLauncher) -> ContainerStatus:
    (status,) = asyncio.run(launcher.containers())
    return status
