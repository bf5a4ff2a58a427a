"""A model whose layers lie on all visible devices, one after another: no batch is divided.

    python train.py --steps 200

Level 0: at SIGTERM it saves and leaves with exit code 75, at the start it goes on from its newest
file. On another number of devices the same layers are only spread in another way, so the numbers
stay the same. Reshape knows nothing of how the model is spread.
"""

import argparse
import os
import signal
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

EXIT_SAVED = 75
LAYERS = 8
WIDTH = 16
BATCH = 32
stopping = False


def stop(number: int, frame: object) -> None:
    """Only remember it; the loop saves between two steps."""
    global stopping
    stopping = True


def devices() -> list[str]:
    """All GPUs; where they are simulated, as many devices of the processor."""
    if os.environ.get("RESHAPE_DEVICE_MODE") == "simulated":
        count = len(os.environ["RESHAPE_DEVICES"].split(","))
        (processor,) = tf.config.list_physical_devices("CPU")
        parts = [tf.config.LogicalDeviceConfiguration()] * count
        tf.config.set_logical_device_configuration(processor, parts)
    found = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return [device.name for device in found]


def save(path: Path, step: int, layers: list[tf.Variable]) -> None:
    """Write beside it, sync, rename: a reader sees the old state or the new one, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    with open(beside, "wb") as file:
        np.savez(file, *[layer.numpy() for layer in layers], step=step)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()

    signal.signal(signal.SIGTERM, stop)
    folder = os.environ.get("RESHAPE_CHECKPOINTS")
    path = Path(folder, "model.npz") if folder else None
    random = np.random.default_rng(0)
    values = [random.normal(0, 0.3, (WIDTH, WIDTH)).astype("float32") for _ in range(LAYERS)]
    step = 0
    if path is not None and path.exists():
        with np.load(path) as kept:
            values, step = [kept[f"arr_{n}"] for n in range(LAYERS)], int(kept["step"])
    places = devices()
    layers = []
    for number, value in enumerate(values):
        with tf.device(places[number * len(places) // LAYERS]):
            layers.append(tf.Variable(value))
    print(f"begins at step {step} with its layers on {len(places)} devices", flush=True)

    while step < options.steps:
        if stopping:
            if path is not None:
                save(path, step, layers)
            print(f"saved step {step}", flush=True)
            return EXIT_SAVED
        x = np.random.default_rng(step).normal(size=(BATCH, WIDTH)).astype("float32")
        with tf.GradientTape() as tape:
            out = tf.constant(x)
            for layer in layers:
                with tf.device(layer.device):
                    out = tf.tanh(tf.linalg.matmul(out, layer))
            loss = tf.reduce_mean(tf.square(out - x))
        for layer, slope in zip(layers, tape.gradient(loss, layers), strict=True):
            layer.assign_sub(0.1 * slope)
        step += 1
        print(f"step {step} loss {float(loss):.6f}", flush=True)
    if path is not None:
        save(path, step, layers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
