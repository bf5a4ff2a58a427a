"""The playbook on a real API server: brings what the client brings, and says what was refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape_launcher.kubernetes.apply import ApplyTarget, PlaybookApplier
from reshape_launcher.kubernetes.launcher import KubernetesLauncher
from reshape_launcher.spec import LaunchError
from tests.kubernetes.namespace import Namespace
from tests.kubernetes.pod_bed import PodBed
from tests.support import training_programs as programs
from tests.support.sidecar_bed import Bed, bed

pytestmark = pytest.mark.kubernetes


@pytest.fixture
def world(namespace: Namespace, tmp_path: Path) -> Iterator[Bed]:
    def by_playbook(path: Path) -> PodBed:
        made = PodBed(path, namespace)
        target = ApplyTarget(str(namespace.grounds.kubeconfig), namespace.name)
        bring = PlaybookApplier(path / "runs", target)
        made.launcher = made.kubernetes = KubernetesLauncher(
            made.api, made.settings, made.devices, bring
        )
        return made

    with bed(tmp_path, by_playbook) as made:
        yield made


def test_the_playbook_launches_once_and_a_second_run_changes_nothing(world: Bed) -> None:
    seen = world.training(programs.PLAIN)
    world.launch(world.spec(programs.PLAIN))
    assert world.count() == 1
    assert world.process().pid == seen.pid


def test_what_the_api_refuses_is_said_with_the_task_and_is_not_tried_again(world: Bed) -> None:
    wrong = world.spec(programs.PLAIN, host="no name of a node")
    with pytest.raises(LaunchError, match=r"task 'Launch the manifests': .*job") as caught:
        world.launch(wrong)
    assert not caught.value.retryable
