"""Overhead of the hook per training step.

    python benchmarks/hook_overhead.py [--steps 1500] [--rounds 3]

It prints two values. *Inside*: the time in the hook's own code between two steps, from timers
around every call of the hook in the training process (timers included); periodic saves are
separate. *Beside*: the time per step of the same script without and with the hook, in turns, so
that other load affects both. On a noisy machine the inside value is the reliable one.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RUN = ROOT / "sidecar" / "reshape_sidecar" / "hook" / "run.py"
STEP_S = 0.020
"""Step to which an overhead in percent refers."""
WARM_STEPS = 100

SCRIPT = f"""
import os, sys, time, json
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras, numpy as np, tensorflow as tf
steps = int(sys.argv[1])
class Watch(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == {WARM_STEPS}:
            self.began = time.perf_counter()
        if batch == steps - 1:
            took = time.perf_counter() - self.began
            print("STEP_S", took / (steps - 1 - {WARM_STEPS}), flush=True)
keras.utils.set_random_seed(1)
with tf.distribute.MirroredStrategy().scope():
    model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(256, "relu"),
                              keras.layers.Dense(256, "relu"), keras.layers.Dense(10)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                  metrics=["accuracy"])
x = np.random.normal(size=(64 * steps, 64)).astype("float32")
y = np.random.randint(10, size=64 * steps)
model.fit(x, y, batch_size=64, epochs=1, verbose=0, callbacks=[Watch()])
"""


def inside() -> None:
    """Run a script under the hook with every call of the hook timed; prints JSON at the end."""
    spec = importlib.util.spec_from_file_location("hook_run", RUN)
    assert spec is not None
    assert spec.loader is not None
    run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run)
    run.load_hook(run.START)
    spent: dict[str, list[float]] = {}

    def timed(owner: Any, name: str) -> None:
        original = getattr(owner, name)
        times = spent.setdefault(name, [])

        def call(*args: Any, **more: Any) -> Any:
            began = time.perf_counter()
            try:
                return original(*args, **more)
            finally:
                times.append(time.perf_counter() - began)

        setattr(owner, name, call)

    fit = importlib.import_module("_reshape_hook.hook.fit").Fit
    position = importlib.import_module("_reshape_hook.hook.position").Position
    saver = importlib.import_module("_reshape_hook.hook.saving").Saver
    for owner, name in (
        (fit, "boundary"),
        (fit, "step_ended"),
        (position, "count_draw"),
        (saver, "save"),
    ):
        timed(owner, name)
    code = run.main()
    warm = {name: times[WARM_STEPS:] for name, times in spent.items() if name != "save"}
    saves = sum(spent["save"])
    per_step = sum(map(sum, warm.values())) / len(warm["boundary"])
    print(
        "INSIDE",
        json.dumps({"per_step_s": per_step, "saves_s": saves, "saves": len(spent["save"])}),
    )
    sys.exit(code)


def process(command: list[str], folder: Path, hook: bool) -> dict[str, str]:
    """Return the lines that a process prints, by their first word."""
    told = {
        "RESHAPE_JOB": "bench",
        "RESHAPE_ATTEMPT": "1",
        "RESHAPE_GENERATION": "1",
        "RESHAPE_CHECKPOINTS": str(folder / "checkpoints"),
    }
    ended = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, **(told if hook else {})},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split(" ", 1) for line in ended.stdout.splitlines() if " " in line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    ratios, insides, plain_s = [], [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "script.py"
        script.write_text(SCRIPT)
        arguments = [str(script), str(options.steps)]
        for number in range(options.rounds):
            place = folder / str(number)
            place.mkdir()
            without = float(process(arguments, place, False)["STEP_S"])
            with_hook = float(process([str(RUN), *arguments], place, True)["STEP_S"])
            found = process([__file__, "--inside", *arguments], place / "inside", True)
            insides.append(json.loads(found["INSIDE"]))
            plain_s.append(without)
            ratios.append(with_hook / without - 1)
    per_step = statistics.median(entry["per_step_s"] for entry in insides)
    print(f"machine: {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(
        f"steps: {options.steps} in each of {options.rounds} rounds, saves per round: "
        f"{[entry['saves'] for entry in insides]}"
    )
    print(
        f"inside: {1e6 * per_step:.0f} us per step = {100 * per_step / STEP_S:.2f} % of a "
        f"{1000 * STEP_S:.0f} ms step (saves apart, which the interval keeps under 2 %)"
    )
    print(
        f"beside: {1000 * statistics.median(plain_s):.2f} ms per step without the hook; with it "
        f"{', '.join(f'{100 * ratio:+.1f} %' for ratio in ratios)}"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        del sys.argv[1]
        inside()
    main()
