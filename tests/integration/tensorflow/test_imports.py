"""A running job trains on while a newcomer imports TensorFlow, on a real daemon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon_bed import Bed, eventually
from tests.support.daemon_bed import bed as make_bed

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(900)]

TENSORFLOW_S = 400.0
"""Seconds for an import and a start of TensorFlow on a slow machine."""
SCRIPT = """
import keras
import numpy
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(numpy.ones((16, 4)), numpy.ones((16, 1)), batch_size=8, epochs=10, verbose=0)
"""


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)


def first(entries: list[dict[str, Any]], kind: str) -> float:
    """Return the time of the first entry of a kind."""
    return min(float(entry["at_s"]) for entry in entries if entry["kind"] == kind)


@pytest.mark.gate
def test_a_donor_is_asked_once_the_newcomer_has_imported_and_its_start_imports_nothing(
    bed: Bed,
) -> None:
    bed.up("--preset", "paper")
    donor = bed.submit("donor", steps=100_000)
    bed.reaches(donor, "running", size=4)
    fields = {"framework": "tensorflow", "optional_gpus": [2], "max_wait_s": 1}
    newcomer = bed.submit("newcomer", SCRIPT, steps=20, **fields)
    done = eventually(
        lambda: found if (found := bed.job(newcomer))["state"] == "completed" else None,
        least_s=TENSORFLOW_S,
        text=lambda: f"it completes: {bed.job(newcomer)}",
    )
    came, gave = (bed.entries(job) for job in (newcomer, donor))
    imported_s = first(came, "imports-ended")
    assert first(came, "imports-awaited") < imported_s <= first(gave, "shrink-asked")
    assert done["times"]["how"] == "zygote", done["times"]
    assert bed.job(donor)["reshape_downs"] == 1
    bed.reshape("cancel", donor)
    bed.reaches(donor, "cancelled")
