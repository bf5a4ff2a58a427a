"""Calls of many threads at once to a real API server do not get in each other's way."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kubernetes.namespace import Namespace
from tests.kubernetes.pod_bed import PodBed
from tests.support import training_programs as programs
from tests.support.sidecar_bed import bed

pytestmark = pytest.mark.kubernetes
ROUNDS = 15


@pytest.fixture
def world(namespace: Namespace, tmp_path: Path) -> Iterator[PodBed]:
    with bed(tmp_path, lambda path: PodBed(path, namespace)) as made:
        assert isinstance(made, PodBed)
        yield made


def test_looking_into_a_container_disturbs_no_other_call(world: PodBed) -> None:
    world.training(programs.PLAIN)
    (found,) = world.pods()

    def look() -> None:
        for _ in range(ROUNDS):
            assert world.api.run_in(found.name, ("echo", "here")) == "here\n"

    def listing() -> None:
        for _ in range(ROUNDS * 10):
            assert world.count() == 1

    with ThreadPoolExecutor(4) as threads:
        for running in [threads.submit(work) for work in (look, listing, look, listing)]:
            running.result()
