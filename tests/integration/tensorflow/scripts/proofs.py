"""A `fit` with loggers. If asked to, a callback changes the loss by a count outside the checkpoint.

Prints each step with the sums of its epoch's losses to the last bit, and writes a line into the
file ``begun``, past all buffers, whenever a step begins.
"""

import os
import signal
from collections import deque
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

KIND = os.environ.get("KIND", "plain")
STOP_AT, KILL_AT = int(os.environ.get("STOP_AT", "0")), int(os.environ.get("KILL_AT", "0"))
FOLDER = Path(os.environ["FOLDER"])
SAMPLES, BATCH = 16 * 10, 16


class Told(keras.callbacks.Callback):
    """Prints each step as a script's own callback sees it, and asks to stop after one of them."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        step = int(self.model.optimizer.iterations.numpy()) + 1
        with (FOLDER / "begun").open("a") as file:
            file.write(f"{step}\n")
        if step == KILL_AT:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        tracker, step = self.model._loss_tracker, int(self.model.optimizer.iterations.numpy())
        sums = float(tracker.total.numpy()).hex(), float(tracker.count.numpy()).hex()
        print("STEP", step, *sums, float(logs["loss"]).hex(), flush=True)
        if step == STOP_AT:
            os.kill(os.getpid(), signal.SIGTERM)


class Board(keras.callbacks.Callback):
    """Writes event files as the callback TensorBoard does, which needs another package."""

    def __init__(self) -> None:
        super().__init__()
        self._writer = tf.summary.create_file_writer(str(FOLDER / "board"))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        with self._writer.as_default():
            step = int(self.model.optimizer.iterations.numpy())
            tf.summary.write("loss", float(logs["loss"]), step=step)


class Counter(keras.callbacks.Callback):
    """Weighs a part of the loss by the steps that this process has seen."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if KIND == "counter":
            seen.append(batch)
            weight.assign(min(1.0, len(seen) / 20))


seen: deque[int] = deque()
keras.utils.set_random_seed(3)
random = np.random.default_rng(0)
x = random.normal(size=(SAMPLES, 8)).astype("float32")
y = x[:, :4].sum(1, keepdims=True).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(SAMPLES, seed=1).batch(BATCH)
strategy = tf.distribute.MirroredStrategy() if KIND != "alone" else tf.distribute.get_strategy()
with strategy.scope():
    weight: Any = tf.Variable(0.0, trainable=False) if KIND == "counter" else 0.0

    class Weighed(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first = keras.layers.Dense(16, "gelu")
            self.last = keras.layers.Dense(1)

        def call(self, inputs: Any) -> Any:
            return self.last(self.first(inputs))

        def compute_loss(  # type: ignore[no-untyped-def]
            self, x=None, y=None, y_pred=None, sample_weight=None, training=True
        ):
            size = tf.reduce_mean(tf.square(y_pred)) / strategy.num_replicas_in_sync
            return super().compute_loss(x, y, y_pred, sample_weight, training) + weight * size

    model = Weighed()
    model.compile(keras.optimizers.Adam(0.01), "mse")
loggers = [keras.callbacks.CSVLogger(str(FOLDER / "log.csv"), append=True), Board()]
model.fit(data, epochs=2, verbose=0, callbacks=[Told(), Counter(), *loggers])
