"""Seconds of a save, a stop, a cold start and a restore against the size of the model.

    python benchmarks/hook_save_restore.py [--megabytes 1 16 128]

For each size a real script is started under the hook, told to save and leave in its third step,
and started again. The phases are those that the hook reports to an agent: save (copy from the
devices, write, sync, hash, rename), then of the second start import, build, restore, first step.
The state is the weights and the two Adam slots, so three times the weights.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.hook_bed import Job  # noqa: E402

LAYER = 1024
LAYER_BYTES = 4 * LAYER * (LAYER + 1)

SCRIPT = """
import os, signal, sys
import keras, numpy as np, tensorflow as tf
keras.utils.set_random_seed(1)
class Stop(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 2 or batch == 5:
            os.kill(os.getpid(), signal.SIGTERM)
width, layers = 1024, int(sys.argv[1])
with tf.distribute.MirroredStrategy().scope():
    model = keras.Sequential([keras.layers.Input((width,))] +
                             [keras.layers.Dense(width, "relu") for _ in range(layers)])
    model.compile("adam", "mse")
x = np.zeros((8 * 20, width), "float32")
model.fit(x, x, batch_size=8, epochs=1, verbose=0, callbacks=[Stop()])
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[4, 64, 256])
    options = parser.parse_args()
    print(f"machine: {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print("state MB   save s   import s   build s   restore s   first step s")
    for megabytes in options.megabytes:
        layers = max(1, round(megabytes * 1e6 / 3 / LAYER_BYTES))
        with tempfile.TemporaryDirectory() as name:
            script = Path(name) / "script.py"
            script.write_text(SCRIPT)
            job = Job(Path(name) / "job", script, (str(layers),))
            saved = job.run(2).reports[-1]
            size = sum(entry.size_bytes for entry in job.newest().manifest.files)
            again = job.run(2).reports[-1]
        figures = (saved.save_s, again.import_s, again.build_s, again.restore_s, again.first_step_s)
        row = "".join(
            f"{figure:10.2f}" if figure is not None else "         -" for figure in figures
        )
        print(f"{size / 1e6:8.1f}{row}")


if __name__ == "__main__":
    main()
