"""The launchers' contract (tests/contract) on pods of a real cluster: the same tests, other bed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.test_launcher_contract import *  # noqa: F403
from tests.kubernetes.namespace import Namespace
from tests.kubernetes.pod_bed import PodBed
from tests.support.sidecar_bed import Bed, bed

pytestmark = pytest.mark.kubernetes


@pytest.fixture  # type: ignore[no-redef]
def world(namespace: Namespace, tmp_path: Path) -> Iterator[Bed]:
    with bed(tmp_path, lambda path: PodBed(path, namespace)) as made:
        yield made
