"""The hook sees how many devices a `fit` uses, and says nothing where it cannot see that."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.hook_bed import Job

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(600)]
SCRIPTS = Path(__file__).parent / "scripts"
PLAIN = """
import time
import keras
import numpy as np

class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.05)

x = np.ones((64, 4), "float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, x[:, :1], batch_size=8, epochs=22, verbose=0, callbacks=[Slow()])
"""


def test_each_use_of_two_devices_is_counted_and_an_unseen_one_is_unknown(tmp_path: Path) -> None:
    ended = Job(tmp_path, SCRIPTS / "used_devices.py").run(2)
    assert ended.code == 0, ended.err
    found = dict(line.removeprefix("USED ").rsplit(" ", 1) for line in ended.lines("USED"))
    assert found == {
        "plain": "1",
        "second": "2",
        "eager": "None",
        "child": "None",
        "again": "1",
        "unused strategy": "None",
        "both": "2",
    }


def test_a_plain_fit_reports_that_it_uses_one_of_two_devices(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text(PLAIN)
    ended = Job(tmp_path, script).run(2)
    assert ended.code == 0, ended.err
    assert {report.devices_used for report in ended.reports} == {None, 1}
    assert ended.reports[-1].devices_used == 1
