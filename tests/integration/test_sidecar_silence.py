"""The SideCar of a real process says for how long its start has been silent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape_sidecar.wire import Phase
from tests.support.sidecar_bed import Bed, bed
from tests.support.training_programs import READY

PREPARES = (
    READY
    + """
ready()
while not os.path.exists("data"):
    time.sleep(0.1)
print("reads its data", flush=True)
while not os.path.exists("model"):
    time.sleep(0.1)
from reshape_sidecar import session
job = session.start()
while True:
    time.sleep(0.01)
    job.step_done(lambda folder: None)
"""
)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Bed]:
    with bed(tmp_path) as made:
        yield made


def test_a_start_is_silent_until_it_prints_and_no_start_is_under_way_once_it_trains(
    job: Bed,
) -> None:
    job.training(PREPARES)
    seen = job.coordinator.until("a silence", lambda o: (o.silent_s or 0.0) >= 5.0)
    assert seen.phase is Phase.STARTING
    (job.code / "data").write_text("")
    seen = job.coordinator.until("its output", lambda o: o.silent_s == 0.0)
    assert seen.phase is Phase.STARTING
    (job.code / "model").write_text("")
    job.coordinator.until("a step", lambda o: o.phase is Phase.RUNNING and o.silent_s is None)
