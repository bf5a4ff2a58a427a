"""Milliseconds that each finished `fit` of a script takes when the script starts again.

    python benchmarks/finished_fits.py [--model lenet|resnet50] [--fits 12]

The script calls `fit` many times and stops in the last call. Its next process passes over the calls
that are over: it gives each the weights, History and callbacks of that time. One table compares a
script that saves nothing between the calls with one that saves the weights, and with one that saves
the model with the slots of its optimizer. The script's own save is not counted.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.hook_bed import Ended, Job  # noqa: E402

SCRIPT = """
import os, signal, sys, time
model_name, fits, save = sys.argv[1], int(sys.argv[2]), sys.argv[3]
import keras, numpy as np
keras.utils.set_random_seed(1)
if model_name == "lenet":
    model = keras.Sequential([
        keras.layers.Input((28, 28, 1)),
        keras.layers.Conv2D(20, 5, activation="relu"), keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(50, 5, activation="relu"), keras.layers.MaxPooling2D(),
        keras.layers.Flatten(), keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(10, activation="softmax")])
    shape, batch = (28, 28, 1), 64
else:
    model = keras.applications.ResNet50(weights=None, classes=10, input_shape=(32, 32, 3))
    shape, batch = (32, 32, 3), 4
model.compile("adam", "sparse_categorical_crossentropy")
x = np.zeros((2 * batch, *shape), "float32")
y = np.zeros(2 * batch, "int64")
class Stop(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        os.kill(os.getpid(), signal.SIGTERM)
for number in range(fits + 1):
    callbacks = [Stop()] if number == fits else []
    start_s, start_processor_s = time.perf_counter(), time.process_time()
    model.fit(x, y, batch_size=batch, verbose=0, callbacks=callbacks)
    wall_s = time.perf_counter() - start_s
    print("fit", wall_s, time.process_time() - start_processor_s, flush=True)
    if save == "weights":
        model.save_weights("w.weights.h5")
    if save == "model":
        model.save("m.keras")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", choices=("lenet", "resnet50"), default="lenet")
    parser.add_argument("--fits", type=int, default=12)
    options = parser.parse_args()
    print(f"machine: {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print("medians of one finished fit at the restart, ms:")
    print("script saves       wall    processor   longest wall")
    for save in ("nothing", "weights", "model"):
        with tempfile.TemporaryDirectory() as name:
            job = _job(Path(name), options.model, options.fits, save)
            job.run(1)
            print(f"{save:12s}{_figures(job.run(1), options.fits)}", flush=True)


def _job(folder: Path, model: str, fits: int, save: str) -> Job:
    script = folder / "script.py"
    script.write_text(SCRIPT)
    (folder / "job").mkdir()
    os.chdir(folder / "job")
    return Job(folder / "job", script, (model, str(fits), save))


def _figures(again: Ended, fits: int) -> str:
    """The columns of a row. The first skipped fit builds the model, as any first fit does."""
    rows = [[float(word) for word in line.split()[1:]] for line in again.lines("fit")[1:fits]]
    assert len(rows) == fits - 1, again.err
    wall_s, processor_s = (statistics.median(column) for column in zip(*rows, strict=True))
    longest_s = max(row[0] for row in rows)
    return f"{1000 * wall_s:12.1f}{1000 * processor_s:13.1f}{1000 * longest_s:15.1f}"


if __name__ == "__main__":
    main()
