"""Seconds of a save, a stop, a cold start and a restore against the size of the model.

    python benchmarks/hook_save_restore.py [--megabytes 1 16 128] [--proofs 5]

For each size a real script is started under the hook, told to save and leave in its third step,
and started again. The phases are those that the hook reports to an agent: save (copy from the
devices, write, sync, hash, rename), then of the second start import, build, restore, first step.
The state is the weights and the two Adam slots, so three times the weights.

`--proofs`: in so many pairs of runs, one with the proof of restarts and one without, the medians of
what follows the request to leave: until the process has ended, and of the next process's first
step; and of a step.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from reshape_sidecar import contract  # noqa: E402
from reshape_sidecar.contract import HookReport  # noqa: E402
from tests.support.hook_bed import Job  # noqa: E402

LAYER = 1024
LAYER_BYTES = 4 * LAYER * (LAYER + 1)

SCRIPT = """
import os, signal, sys, time
import keras, numpy as np, tensorflow as tf
keras.utils.set_random_seed(1)
class Stop(keras.callbacks.Callback):
    began = 0.0
    def on_train_batch_end(self, batch, logs=None):
        now = time.monotonic()
        print("STEP", now - self.began)
        self.began = now
        if batch == 7 or batch == 15:
            print("ASKED", now, flush=True)
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
    parser.add_argument("--proofs", type=int, default=0)
    options = parser.parse_args()
    print(f"machine: {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    if options.proofs:
        print("state MB   proof   step ms   asked to ended s   first step s")
    else:
        print("state MB   save s   import s   build s   restore s   first step s")
    for megabytes in options.megabytes:
        layers = max(1, round(megabytes * 1e6 / 3 / LAYER_BYTES))
        if not options.proofs:
            saved, _, again, size = pair(layers)
            row = (saved.save_s, again.import_s, again.build_s, again.restore_s, again.first_step_s)
            print(f"{size / 1e6:8.1f}" + "".join(f"{_shown(figure):>10}" for figure in row))
            continue
        found: dict[str, list[tuple[float, float, float]]] = {"off": [], "report": []}
        for number in range(2 * options.proofs):
            mode = ["off", "report", "report", "off"][number % 4]
            _, (step_s, stop_s), again, size = pair(layers, mode)
            found[mode].append((step_s, stop_s, again.first_step_s or 0.0))
        for mode, rows in found.items():
            step_s, stop_s, first_s = map(statistics.median, zip(*rows, strict=True))
            print(f"{size / 1e6:8.1f}{mode:>8}{step_s * 1e3:10.1f}{stop_s:18.3f}{first_s:14.3f}")


def pair(
    layers: int, proof: str = "off"
) -> tuple[HookReport, tuple[float, float], HookReport, int]:
    """Run two processes; return the last report of the first, the seconds of its steps and from the
    request to its end, the last report of the second, and the bytes of a checkpoint."""
    with tempfile.TemporaryDirectory() as name:
        script = Path(name) / "script.py"
        script.write_text(SCRIPT)
        job = Job(Path(name) / "job", script, (str(layers),), {contract.ENV_PROOF: proof})
        ended = job.run(2)
        ended_s = time.monotonic()
        asked_s = float(ended.lines("ASKED")[0].split()[1])
        steps = [float(line.split()[1]) for line in ended.lines("STEP")[2:]]
        size = sum(entry.size_bytes for entry in job.newest().manifest.files)
        times = statistics.median(steps), ended_s - asked_s
        return ended.reports[-1], times, job.run(2).reports[-1], size


def _shown(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f}"


if __name__ == "__main__":
    main()
