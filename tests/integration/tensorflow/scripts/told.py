"""Shared by the scripts of ``cases``: data, small models, and a callback that tells each step.

With STOP_AT=n the process sends itself SIGTERM in its n-th step, in a callback of its own: the same
signal that an agent sends, at a place that is the same in every run. With STOP_IN=place it does so
there.
"""

import functools
import os
import signal

import keras
import numpy as np
import tensorflow as tf

STOP_AT = int(os.environ.get("STOP_AT", "0"))


def count_here(name: str) -> int:
    """Count in the environment, for this process: the hook restores counters of the script."""
    number = int(os.environ.get(name, "0")) + 1
    os.environ[name] = str(number)
    return number


def stop_now() -> None:
    print("asked", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)


def stop_in(place: str) -> None:
    if place == os.environ.get("STOP_IN"):
        del os.environ["STOP_IN"]  # once in this process
        stop_now()


class Told(keras.callbacks.Callback):
    """Prints each step's loss (not the running mean), and stops where it is told to."""

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self.seen = (0.0, 0.0)
        rate = float(self.model.optimizer.learning_rate.numpy())
        print(f"EPOCH {epoch} {rate:.9g}", flush=True)

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        steps_here = count_here("STEPS_HERE")
        tracker = self.model._loss_tracker
        now = (float(tracker.total.numpy()), float(tracker.count.numpy()))
        # A resumed epoch begins with the sums of the steps before; those were printed already.
        step = int(self.model.optimizer.iterations.numpy())
        print(f"STEP {self.model.name} {step} {now[0]:.9g} {now[1]:.9g}", flush=True)
        if steps_here == STOP_AT:
            stop_now()

    def on_predict_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        stop_in("predict")

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        stop_in("epoch_end")


def data(samples: int = 300) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.normal(size=(samples, 8)).astype("float32")
    return x, (x.sum(1) > 0).astype("int64")


class Validation(keras.utils.PyDataset):
    """Data of a validation, in the middle of which it may be time to stop."""

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        super().__init__()
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x) // 32

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        if index:
            stop_in("evaluate")
        part = slice(index * 32, index * 32 + 32)
        return self.x[part], self.y[part]


@functools.cache
def mirrored() -> tf.distribute.Strategy:
    """One strategy for all cases of a process: TensorFlow mixes two of them up."""
    return tf.distribute.MirroredStrategy()


def loss() -> keras.losses.Loss:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def dense(
    name: str,
    optimizer: str | keras.optimizers.Optimizer,
    *layers: keras.layers.Layer,
    **compile_: int,
) -> keras.Model:
    model = keras.Sequential([keras.layers.Input((8,)), *layers, keras.layers.Dense(2)], name=name)
    model.compile(optimizer, loss(), metrics=["accuracy"], **compile_)
    return model


def show(history: keras.callbacks.History, model: keras.Model) -> None:
    for name, values in sorted(history.history.items()):
        print("HISTORY", name, " ".join(f"{value:.7g}" for value in values))
    print("EPOCHS", history.epoch)
    total = sum(float(np.abs(w.numpy()).sum()) for w in model.trainable_variables)
    print(f"WEIGHTS {total:.9g}", flush=True)
