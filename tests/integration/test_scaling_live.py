"""``dragon`` and ``weighted`` on a real daemon: the two jobs of the README."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon_bed import Bed
from tests.support.daemon_bed import bed as make_bed


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)


@pytest.mark.parametrize("policy", ["dragon:up_after_s=1", "weighted"])
def test_a_job_grows_while_it_is_alone_gives_to_another_and_grows_back(
    bed: Bed, policy: str
) -> None:
    bed.up("--policy", policy)
    first = bed.submit("my-job", steps=100_000, optional_gpus=[1, 2, 4])
    bed.reaches(first, "running", size=4)
    second = bed.submit("second", steps=20, optional_gpus=[2], max_wait_s=1)
    bed.reaches(second, "completed")
    assert "second on 2 GPUs of local, my-job down to 2" in bed.reshape("explain", "second").stdout
    grown = bed.reaches(first, "running", size=4)
    assert (grown["steps_lost"], grown["container_restarts"], grown["failures"]) == (0, 0, 0)
    assert (grown["reshape_ups"], grown["reshape_downs"]) == (2, 1)
