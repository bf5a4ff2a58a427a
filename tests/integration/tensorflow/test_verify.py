"""`reshape verify` on Keras scripts: one that comes out the same, one with two planted faults."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(600)]

MODEL = """
import numpy as np, tensorflow as tf, keras
keras.utils.set_random_seed(1)
x = np.random.default_rng(0).normal(size=(320, 8)).astype("float32")
y = (x.sum(1) > 0).astype("int32")
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(2)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
"""
GOOD = MODEL + "model.fit(x, y, batch_size=32, epochs=3, validation_split=0.2, verbose=0)\n"
FAULTY = (
    MODEL
    + """
losses = []
log = open("log.txt", "w", buffering=1)
class Notes(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        losses.append(logs["loss"])
    def on_epoch_end(self, epoch, logs=None):
        log.write(f"{epoch} {logs['loss']}\\n")
model.fit(x, y, batch_size=32, epochs=3, callbacks=[Notes()], verbose=0)
"""
)


def verify(folder: Path, text: str) -> tuple[int, Any]:
    """Verify a script over 24 steps; return the exit code and the report."""
    (folder / "train.py").write_text(text)
    record = {"name": "small", "command": "python train.py", "optional_gpus": [1]}
    (folder / "record.json").write_text(json.dumps(record))
    command = [sys.executable, "-m", "reshape_controller.cli.main", "verify", "record.json"]
    command += ["--steps", "24", "--simulated-gpus", "1", "--output", "json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.gate
def test_a_fit_with_validation_is_exact_to_the_last_bit(tmp_path: Path) -> None:
    code, report = verify(tmp_path, GOOD)
    assert report["verification"]["verdict"] == "exact", report
    assert report["verification"]["reason"] == "equal to the last bit"
    assert (code, report["stops"], report["differences"]) == (0, [8, 16], [])
    assert "keras" in report["verification"]["versions"]


def test_a_file_written_anew_and_a_list_of_the_script_are_named(tmp_path: Path) -> None:
    code, report = verify(tmp_path, FAULTY)
    assert code == 1
    assert report["verification"]["verdict"] == "steps-only"
    text = "\n".join(report["differences"])
    assert "on_train_batch_end: losses after fit 1 is" in text
    assert "file log.txt is" in text
    assert "step " not in text.split(" is ", maxsplit=1)[0]  # no loss differs
