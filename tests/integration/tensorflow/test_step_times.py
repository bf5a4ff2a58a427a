"""The seconds per step that the hook reports are those that Keras prints."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median

import pytest

from tests.support.hook_bed import Job

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(900)]

STEPS, EPOCHS = 60, 3
FIT = f"""
import time, keras, numpy as np
keras.utils.set_random_seed(1)

class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.02)  # a callback is part of a step, and so is the data
    def on_test_batch_end(self, batch, logs=None):
        time.sleep(0.05)

model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(64), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.random.rand({STEPS} * 8 + 160, 8)
model.fit(x, x[:, :1], batch_size=8, epochs={EPOCHS}, validation_split=160 / len(x),
          callbacks=[Slow()], shuffle=False)
"""
PRINTED = re.compile(r"(\d+)/\d+[^\n\r]*?(\d+(?:\.\d+)?)(us|ms|s)/step(?![^\n\r]*val_loss)")
UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def test_a_step_takes_as_long_as_keras_prints_and_validation_is_apart(tmp_path: Path) -> None:
    script = tmp_path / "fit.py"
    script.write_text(FIT)
    ended = Job(tmp_path / "job", script).run(1)
    assert ended.code == 0, ended.err
    found = PRINTED.findall(ended.out)
    near_end = range(STEPS - 6, STEPS + 1)
    printed_s = [float(n) * UNITS_S[unit] for done, n, unit in found if int(done) in near_end]
    assert len(printed_s) >= EPOCHS, ended.out[-3000:]
    progress = ended.reports[-1].progress
    assert progress.seconds_per_step == pytest.approx(median(printed_s), rel=0.2)
    assert progress.evaluation_s is not None
    assert progress.epoch_end_s is not None
    assert progress.apart_s_per_step is not None
    assert 20 * 0.05 < progress.evaluation_s < progress.epoch_end_s < 20 * 0.05 + 2.0
    assert progress.apart_s_per_step == pytest.approx(progress.epoch_end_s / STEPS, rel=0.25)
