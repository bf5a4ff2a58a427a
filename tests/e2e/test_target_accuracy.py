"""A target accuracy on a real daemon: the job ends at it, paused on the way, and has a curve."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reshape_controller.core.events import CurveFitted, SideCarReported
from reshape_controller.core.record import LogRecord
from reshape_controller.store.sqlite.store import SqliteStore
from tests.support.daemon_bed import Bed, eventually
from tests.support.daemon_bed import bed as make_bed
from tests.support.fed_log import verify

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(600)]

TENSORFLOW_S = 200.0
"""Two starts of TensorFlow on a slow machine, beyond the bed's own deadline."""
SCRIPT = """
import time
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(1)
random = np.random.default_rng(0)
x = random.normal(size=(1280, 16)).astype("float32")
y = (x @ random.normal(size=(16, 4))).argmax(1)


class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.1)


with tf.distribute.MirroredStrategy().scope():
    model = keras.Sequential(
        [keras.Input((16,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(4)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
part = (x[:256], y[:256])
model.fit(x, y, 128, epochs=30, verbose=2, validation_data=part, callbacks=[Slow()])
print("AFTER the fit", flush=True)
"""


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)


def the_log(bed: Bed) -> list[LogRecord]:
    async def read() -> list[LogRecord]:
        store = SqliteStore(bed.home / "store.sqlite")
        await store.open()
        try:
            return [record async for record in store.read(0)]
        finally:
            await store.close()

    return asyncio.run(read())


def evaluated_steps(records: list[LogRecord]) -> set[int]:
    """Return the steps of all evaluations that were reported."""
    return {
        step
        for record in records
        for event in record.events
        if isinstance(event, SideCarReported) and event.observed.progress.target is not None
        for step, _ in event.observed.progress.target.evaluations
    }


def reaches(bed: Bed, key: str, state: str) -> Any:
    """Wait until a job is in a state; the job."""

    def there() -> Any:
        now = bed.job(key)
        assert now["state"] not in ("failed", "cancelled"), now
        return now if now["state"] == state else None

    return eventually(there, least_s=TENSORFLOW_S, text=f"{key} is {state}")


def test_the_target_ends_the_job_and_every_evaluation_is_a_point_of_its_curve(bed: Bed) -> None:
    """Its validation reaches 0.86 in the eighth and ninth of its 30 epochs of ten steps."""
    bed.up()
    fields = {"target_accuracy": 0.86, "epochs_in_a_row": 2, "global_batch": 128}
    job = bed.submit("learner", SCRIPT, steps=None, framework="keras", **fields)
    eventually(lambda: bed.job(job)["metric_step"], least_s=TENSORFLOW_S, text="an evaluation")
    bed.reshape("pause", "learner")
    paused = reaches(bed, job, "halted")
    assert 10 <= paused["step"] < 90
    bed.reshape("resume", "learner")
    done = reaches(bed, job, "completed")
    assert (done["step"], done["epoch"], done["failures"]) == (90, 9, 0)
    assert done["attempt"] == 2
    assert done["reason"].startswith("reached its target accuracy 0.86: val_accuracy is 0.9")
    assert done["reason"].endswith("at step 90, after epoch 9, 2 times in a row")
    assert "AFTER the fit" in bed.reshape("logs", "learner", "-n", "100000").stdout
    shown = bed.reshape("describe", "learner").stdout
    assert "val_accuracy 0.9" in shown
    assert "reaches the target at step" in shown

    bed.stop()
    records = the_log(bed)
    verify(records)
    events = [event for record in records for event in record.events]
    fits = [event.curve.points for event in events if isinstance(event, CurveFitted)]
    assert fits[0] >= 5
    assert fits == sorted(fits)
    assert evaluated_steps(records) == set(range(10, 100, 10))


def test_a_target_goes_on_over_a_shrink(bed: Bed) -> None:
    """The row of evaluations, the points and the end are those of a run without a reshape."""
    bed.up()
    fields = {"target_accuracy": 0.86, "epochs_in_a_row": 2, "global_batch": 128}
    job = bed.submit("learner", SCRIPT, steps=None, framework="keras", **fields)
    eventually(lambda: bed.job(job)["metric_step"], least_s=TENSORFLOW_S, text="an evaluation")
    newcomer = bed.submit("newcomer", steps=20, optional_gpus=[2], max_wait_s=1)
    reaches(bed, newcomer, "completed")
    done = reaches(bed, job, "completed")
    assert done["reshape_downs"] == 1
    assert (done["failures"], done["steps_lost"], done["attempt"]) == (0, 0, 1)
    assert done["step"] == 90
    assert done["reason"].startswith("reached its target accuracy 0.86: val_accuracy is 0.9")
    assert "2 times in a row" in done["reason"]
    bed.stop()
    assert evaluated_steps(the_log(bed)) == set(range(10, 100, 10))
