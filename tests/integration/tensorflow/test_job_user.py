"""A TensorFlow job of another user than its SideCar's goes through each kind of hand-over."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_sidecar.wire import Mode, Observed, Phase, PrepareStage, StandbyState, StartKind
from tests.support import coordinator_double, sidecar_bed
from tests.support.sidecar_bed import DEVICES
from tests.support.user_bed import ADA, UserBed, user_bed

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(600)]

IMPORT_S = 240.0
"""The zygote imports TensorFlow, on a machine that may do other work."""
SCRIPT = """
import time
import keras
import numpy
model = keras.Sequential([keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.01), "mse")
pause = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(0.02))
data = numpy.ones((64, 4)), numpy.ones((64, 1))
model.fit(*data, batch_size=8, epochs=100_000, verbose=0, callbacks=[pause])
"""


def trains(job: UserBed, generation: int, how: StartKind) -> Observed:
    """Wait until a generation has gone on from what was saved; its process has to be Ada's."""
    seen = job.coordinator.until(
        f"steps of generation {generation}",
        lambda o: (
            (o.stopped_generation, o.phase) == (generation, Phase.RUNNING)
            and o.progress.step > max(3, saved_step(o))
        ),
    )
    status = Path(f"/proc/{seen.pid}/status").read_text()
    assert f"Uid:\t{ADA}\t{ADA}\t{ADA}\t{ADA}\n" in status
    assert seen.times.how is how, seen.times.fallback
    return seen


def saved_step(seen: Observed) -> int:
    return 0 if seen.outcome is None else seen.outcome.saved_step or 0


def test_zygote_successor_and_zygote_again_go_on_for_a_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (coordinator_double, sidecar_bed):
        monkeypatch.setattr(module, "PATIENCE_S", IMPORT_S)
    with user_bed() as job:
        job.initialised(SCRIPT, framework="tensorflow")
        job.coordinator.until(
            "a zygote", lambda o: o.standby is not None and o.standby.state is StandbyState.READY
        )
        first = job.coordinator.want(Mode.RUN, *DEVICES)
        trains(job, first, StartKind.ZYGOTE)

        job.coordinator.want(Mode.RUN, *DEVICES, generation=first, prepare=DEVICES[:2])
        job.coordinator.until(
            "a successor",
            lambda o: o.prepared is not None and o.prepared.stage is PrepareStage.READY,
        )
        down = job.coordinator.want(Mode.RUN, *DEVICES[:2])
        seen = trains(job, down, StartKind.SUCCESSOR)
        assert saved_step(seen) > 3

        up = job.coordinator.want(Mode.RUN, *DEVICES)
        again = trains(job, up, StartKind.ZYGOTE)
        assert saved_step(again) > saved_step(seen)
        assert {path.stat().st_uid for path in (job.path / "checkpoints").rglob("*")} == {ADA}
