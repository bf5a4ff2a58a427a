"""A tiny Keras script for tests of saving: what it does is told by the environment."""

import os
import random
import resource
import signal
import sys
import time

import keras
import numpy as np
import tensorflow as tf

EPOCHS = int(os.environ.get("EPOCHS", "3"))
STEP_S = float(os.environ.get("STEP_S", "0"))
STOP_AT = int(os.environ.get("STOP_AT", "0"))
DISK_FULL = os.environ.get("DISK_FULL")
SEEDED = os.environ.get("SEEDED", "1") == "1"
INPUT = os.environ.get("INPUT", "arrays")
RAISE_AT = int(os.environ.get("RAISE_AT", "0"))


def count_here(name: str) -> int:
    """Count in the environment, for this process: the hook restores counters of the script."""
    number = int(os.environ.get(name, "0")) + 1
    os.environ[name] = str(number)
    return number


class Steps(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        count = count_here("STEPS_HERE")
        print(f"STEP {int(self.model.optimizer.iterations.numpy())}", flush=True)
        if count == STOP_AT:
            os.kill(os.getpid(), signal.SIGTERM)
        if count == RAISE_AT:
            raise RuntimeError("a callback of the script fails")
        if DISK_FULL and count == 12:
            # The disk has space again.
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        time.sleep(STEP_S)


class Seen(keras.layers.Layer):
    """Prints which samples a step has seen."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        tf.py_function(self.show, [x[:, 0]], [])
        return x

    @staticmethod
    def show(numbers: tf.Tensor) -> None:
        print("SEEN", *[int(number) for number in numbers.numpy()], flush=True)


if SEEDED:
    keras.utils.set_random_seed(1)
if DISK_FULL:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, unlimited))
x: np.ndarray = np.arange(40, dtype="float32").reshape(40, 1)
y: np.ndarray = np.zeros((40, 1), "float32")
layers = [keras.layers.Input((1,)), keras.layers.Dense(1)]
if not SEEDED:
    layers.insert(1, Seen())
model = keras.Sequential(layers)
model.compile(keras.optimizers.SGD(1e-6), "mse")
if INPUT == "pipeline":
    arguments = {"x": tf.data.Dataset.from_tensor_slices((x, y)).shuffle(40).batch(8)}
else:
    if INPUT == "listed":
        order = list(range(40))
        random.shuffle(order)
        x = x[np.random.permutation(order)]
    arguments = {"x": x, "y": y, "batch_size": 8}
verbose = int(os.environ.get("VERBOSE", "0"))
model.fit(**arguments, epochs=EPOCHS, verbose=verbose, callbacks=[Steps()])
print("ARGUMENTS", *sys.argv[1:], flush=True)
sys.exit(int(os.environ.get("EXIT", "0")))
