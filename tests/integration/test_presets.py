"""The five presets on a real daemon: a running job, a newcomer, and what each mechanism does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape_controller.core.model import Mechanism
from reshape_controller.policies import PRESETS
from tests.support.daemon_bed import Bed
from tests.support.daemon_bed import bed as make_bed


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_both_jobs_complete_and_every_step_is_done_once(bed: Bed, preset: str) -> None:
    bed.up("--preset", preset)
    elastic = bed.submit("elastic", steps=120)
    bed.reaches(elastic, "running")
    newcomer = bed.submit("newcomer", steps=20, optional_gpus=[2], max_wait_s=1)
    bed.reaches(newcomer, "completed")
    done = bed.reaches(elastic, "completed")

    attempts = sorted((bed.home / "jobs" / elastic).glob("attempt-*/logs/training.log"))
    log = [line for path in attempts for line in path.read_text().splitlines()]
    begins = [line.split()[3] for line in log if line.startswith("begins")]
    saves = [line.split()[-1] for line in log if line.startswith("saved")]
    assert begins == ["0", *saves], "each start goes on where the one before it saved"
    assert done["steps_lost"] == 0
    assert done["failures"] == 0
    reshapes = done["reshape_ups"] + done["reshape_downs"]
    match PRESETS[preset].mechanism:
        case Mechanism.NONE:
            assert (reshapes, len(begins)) == (0, 1)
        case Mechanism.SIDECAR:
            assert done["container_restarts"] == 0
            assert done["process_restarts"] == len(begins) - 1
        case Mechanism.TERMINATE:
            assert done["container_restarts"] == len(begins) - 1
