"""Fits whose data change state outside of the model while they are read.

    python restored.py CASE [CASE ...]

Prints the loss of each step, bit by bit. ``STOP`` is ``CASE:N``: stop after step N of that case;
``CASE:epoch N``: at the end of that epoch.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

STOP = os.environ.get("STOP", "")
current = ""


class Steps(keras.callbacks.Callback):  # type: ignore[misc]
    """Prints each step, and stops the process."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        step = int(self.model.optimizer.iterations.numpy())
        print(f"STEP {current} {step} {float(logs['loss']).hex()}", flush=True)
        stop_at(str(step))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        stop_at(f"epoch {epoch}")


def stop_at(place: str) -> None:
    if f"{current}:{place}" == STOP:
        os.kill(os.getpid(), signal.SIGTERM)


keras.utils.set_random_seed(1)
numbers = np.random.default_rng(0)
x = numbers.normal(size=(96, 16)).astype("float32")
y = (x @ numbers.normal(size=(16, 4))).argmax(1)
raw = tf.data.Dataset.from_tensor_slices((x, y))
noise = keras.layers.GaussianNoise(0.5)
shift = keras.layers.RandomTranslation(0.4, 0.4)
other = keras.layers.Dropout(0.5)
seeds = keras.random.SeedGenerator(7)
generator = tf.random.Generator.from_seed(5)
counter = tf.Variable(0.0)
Batch = tuple[tf.Tensor, tf.Tensor]


def noisy(a: tf.Tensor, b: tf.Tensor) -> Batch:
    return noise(a, training=True), b


def shifted(a: tf.Tensor, b: tf.Tensor) -> Batch:
    image = tf.reshape(a, [-1, 4, 4, 1])
    return tf.reshape(shift(image, training=True), tf.shape(a)), b


def seeded(a: tf.Tensor, b: tf.Tensor) -> Batch:
    return a + keras.random.normal((16,), seed=seeds) + generator.normal([16]), b


def counted(a: tf.Tensor, b: tf.Tensor) -> Batch:
    counter.assign_add(1.0)
    return a + counter / 100, b


def model(strategy: Any = None) -> keras.Model:
    with (strategy or tf.distribute.get_strategy()).scope():
        made = keras.Sequential(
            [
                keras.Input((16,)),
                keras.layers.Dense(8, activation="relu"),
                keras.layers.Dense(4),
            ]
        )
        made.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return made


def fit(data: Any, strategy: Any = None, epochs: int = 3, **more: Any) -> None:
    model(strategy).fit(data, epochs=epochs, verbose=0, callbacks=[Steps()], **more)


def two_fits() -> None:
    data, one = raw.map(noisy).batch(16), model()
    for _ in range(2):
        one.fit(data, epochs=2, verbose=0, callbacks=[Steps()])


def nested() -> tf.data.Dataset:
    inner = raw.map(counted)
    parts = tf.data.Dataset.range(2).flat_map(lambda i: inner.shard(2, i).map(noisy))
    return parts.apply(tf.data.experimental.assert_cardinality(96))


def zipped() -> tf.data.Dataset:
    more = raw.map(shifted).concatenate(raw.take(32).map(seeded))
    both = tf.data.Dataset.zip((raw.repeat().map(noisy), more))
    return both.map(lambda one, two: (one[0] + two[0], one[1]))


CASES: dict[str, Callable[[], object]] = {
    "noise": lambda: fit(raw.map(noisy).batch(16).prefetch(4)),
    "translation": lambda: fit(raw.shuffle(96).batch(16).map(shifted)),
    "generators": lambda: fit(raw.map(seeded).shuffle(32, seed=1).batch(16, drop_remainder=True)),
    "variable": lambda: fit(
        raw.map(counted).repeat().batch(16).prefetch(2), steps_per_epoch=5, epochs=4
    ),
    "whole_epochs": lambda: fit(raw.map(noisy).batch(16), steps_per_epoch=3, epochs=4),
    "nested": lambda: fit(nested().batch(16)),
    "zipped": lambda: fit(zipped().batch(16)),
    "cached": lambda: fit(raw.map(noisy).cache().shuffle(96).batch(16)),
    "validated": lambda: fit(
        raw.map(noisy).batch(16), validation_data=raw.take(32).map(noisy).batch(16)
    ),
    "two_fits": two_fits,
    "mirrored": lambda: fit(raw.map(noisy).batch(16), tf.distribute.MirroredStrategy()),
}

if __name__ == "__main__":
    for current in sys.argv[1:]:
        CASES[current]()
