"""What cannot run in a pod ends with the reason, on a real node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kubernetes.namespace import Namespace
from tests.kubernetes.pod_bed import PodBed
from tests.support import training_programs as programs
from tests.support.sidecar_bed import Bed, bed, eventually

pytestmark = pytest.mark.kubernetes


@pytest.fixture
def world(namespace: Namespace, tmp_path: Path) -> Iterator[Bed]:
    with bed(tmp_path, lambda path: PodBed(path, namespace)) as made:
        yield made


def test_an_image_without_the_python_of_the_command_is_refused_with_the_reason(world: Bed) -> None:
    spec = world.spec(programs.PLAIN)
    world.launch(replace(spec, command=("/nowhere/python", "train.py")))
    assert "the SideCar cannot be installed" in world.gone().reason
    assert "/nowhere/python" in world.gone().reason


def test_what_no_node_has_room_for_is_said_in_the_schedulers_words(world: Bed) -> None:
    world.launch(replace(world.spec(programs.PLAIN), cpus=4096.0))
    said = eventually("the reason", lambda: "Insufficient cpu" in world.status().reason)
    assert said
    assert world.status().running, "the scheduler may find room yet"
