"""How long training and stops wait for TensorFlow's iterators to be destroyed.

    python benchmarks/iterator_stalls.py [--stops 30] [--rounds 2] [--devices 2]

LeNet trains with epochs of about 0.2 s under the hook, in turns, so that load on the machine falls
on all alike: *without* threads that destroy iterators, *with* them, and on *one iterator* for all
epochs, so that none is destroyed. While it trains, each process is asked to stop so many times; a
step boundary answers, and training goes on. Seconds; *steps/s* is over all that time, *by epoch*
what the median epoch reaches; threads and megabytes are those of the process, the most at the end
of any epoch, and their growth from the first tenth of the epochs to the last.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import json
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RUN = ROOT / "sidecar" / "reshape_sidecar" / "hook" / "run.py"
BETWEEN_STOPS_S = (0.3, 1.3)
LATE_S = 0.5
"""A stop that takes longer is late."""
MODES = ("without", "with", "one iterator")

SCRIPT = """
import json, os, time
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras, numpy as np, tensorflow as tf
STEPS = 34
class Watch(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.steps, self.epochs, self.threads, self.rss = [], [], [], []
    def on_train_batch_end(self, batch, logs=None):
        if self.epochs:
            self.steps.append(time.monotonic())
    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(time.monotonic())
        self.threads.append(len(os.listdir("/proc/self/task")))
        with open("/proc/self/statm") as file:
            self.rss.append(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6)
        if epoch == 2:
            print("TRAINS", flush=True)
        if os.path.exists(os.environ["ENOUGH"]):
            self.model.stop_training = True
    def on_train_end(self, logs=None):
        gaps = np.diff(self.steps)
        print("RESULT", json.dumps({
            "rate": len(gaps) / float(self.steps[-1] - self.steps[0]),
            "by_epoch": STEPS / float(np.median(np.diff(self.epochs))),
            "gap": float(gaps.max()), "gaps": gaps[gaps > 1.0].tolist(),
            "epochs": len(self.epochs), "threads": max(self.threads), "rss": max(self.rss),
            "rss_growth": self.rss[-1] - self.rss[len(self.rss) // 10]}), flush=True)
keras.utils.set_random_seed(1)
with tf.distribute.MirroredStrategy().scope():
    model = keras.Sequential([
        keras.layers.Input((28, 28, 1)),
        keras.layers.Conv2D(6, 5, strides=2, activation="relu"),
        keras.layers.Conv2D(16, 5, strides=2, activation="relu"),
        keras.layers.Flatten(), keras.layers.Dense(64, "relu"), keras.layers.Dense(10)])
    model.compile(keras.optimizers.SGD(0.02, momentum=0.9),
                  keras.losses.SparseCategoricalCrossentropy(from_logits=True))
x = np.random.normal(size=(64 * STEPS, 28, 28, 1)).astype("float32")
y = np.random.randint(10, size=len(x))
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x)).batch(64).prefetch(2)
if os.environ["MODE"] == "one iterator":
    arguments = {"x": data.repeat(), "steps_per_epoch": STEPS}
else:
    arguments = {"x": data}
model.fit(**arguments, epochs=10**6, verbose=0, callbacks=[Watch()])
"""


@dataclass
class Measured:
    """The figures of the processes of one mode."""

    stops_s: list[float] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)


def inside(mode: str) -> None:
    """Run a script under the hook; a stop is answered by a line, and training goes on."""
    spec = importlib.util.spec_from_file_location("hook_run", RUN)
    assert spec is not None
    assert spec.loader is not None
    run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run)
    run.load_hook(run.START)
    if mode == "without":
        module: Any = importlib.import_module("_reshape_hook.hook.iterators")
        module.destroy_elsewhere = lambda: None
    saver = importlib.import_module("_reshape_hook.hook.saving").Saver
    original = saver.stop_due

    def stop_due(self: Any, now_s: float) -> bool:
        if original(self, now_s):
            self.stop._requested = False
            print("BOUNDARY", time.monotonic(), flush=True)
        return False

    saver.stop_due = stop_due
    sys.exit(run.main())


def measure(mode: str, script: Path, folder: Path, options: Any) -> tuple[list[float], Any]:
    """Seconds from each signal to the step boundary, and what the script has measured."""
    folder.mkdir()
    enough = folder / "enough"
    told = {
        "RESHAPE_JOB": "bench",
        "RESHAPE_ATTEMPT": "1",
        "RESHAPE_GENERATION": "1",
        "RESHAPE_DEVICES": ",".join(f"GPU-{number}" for number in range(options.devices)),
        "RESHAPE_DEVICE_MODE": "simulated",
        "RESHAPE_CHECKPOINTS": str(folder / "checkpoints"),
        "ENOUGH": str(enough),
        "MODE": mode,
    }
    stops_s: list[float] = []
    result: Any = None
    with (
        subprocess.Popen(
            [sys.executable, __file__, "--inside", mode, str(script)],
            env={**os.environ, **told},
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
        contextlib.ExitStack() as ending,
    ):
        ending.callback(process.kill)
        assert process.stdout is not None
        asked_s = 0.0
        for line in process.stdout:
            word, _, rest = line.partition(" ")
            if word == "RESULT":
                result = json.loads(rest)
                break
            if word == "BOUNDARY":
                stops_s.append(float(rest) - asked_s)
            elif word.strip() != "TRAINS":
                continue
            time.sleep(random.uniform(*BETWEEN_STOPS_S))
            if len(stops_s) == options.stops:
                enough.touch()
                continue
            asked_s = time.monotonic()
            process.send_signal(signal.SIGTERM)
    return stops_s, result


def row(mode: str, found: Measured) -> str:
    """A line of the table."""
    stops_s, results = sorted(found.stops_s), found.results
    gaps = [gap for result in results for gap in result["gaps"]]
    return (
        f"| {mode} | {statistics.median(result['rate'] for result in results):.0f} "
        f"| {statistics.median(result['by_epoch'] for result in results):.0f} "
        f"| {len(gaps)}, {sum(gaps):.1f} | {max(result['gap'] for result in results):.2f} "
        f"| {statistics.median(stops_s):.3f} | {stops_s[-1]:.2f} "
        f"| {sum(stop > LATE_S for stop in stops_s)} of {len(stops_s)} "
        f"| {max(result['threads'] for result in results)} "
        f"| {max(result['rss'] for result in results):.0f} "
        f"({max(result['rss_growth'] for result in results):+.0f}) |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stops", type=int, default=30, help="of each process")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--devices", type=int, default=2)
    options = parser.parse_args()
    found = {mode: Measured() for mode in MODES}
    loads = []
    with tempfile.TemporaryDirectory() as name:
        script = Path(name) / "script.py"
        script.write_text(SCRIPT)
        for number in range(options.rounds):
            for mode in MODES:
                place = Path(name) / f"{MODES.index(mode)}-{number}"
                stops_s, result = measure(mode, script, place, options)
                found[mode].stops_s.extend(stops_s)
                found[mode].results.append(result)
                loads.append(os.getloadavg()[0])
                print(row(mode, found[mode]), file=sys.stderr, flush=True)
    print(
        f"machine: {platform.machine()}, {os.cpu_count()} cores, load {min(loads):.0f} to "
        f"{max(loads):.0f}; {options.devices} devices, {options.rounds} processes of each mode"
    )
    epochs = {mode: sum(result["epochs"] for result in found[mode].results) for mode in MODES}
    print(f"epochs: {epochs}")
    print(
        "| destroyed by threads | steps/s | by epoch | gaps over 1 s, sum | longest gap "
        "| stop, median | longest | over 0.5 s | threads | MB (growth) |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for mode in MODES:
        print(row(mode, found[mode]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        mode = sys.argv[2]
        del sys.argv[1:3]
        inside(mode)
    main()
