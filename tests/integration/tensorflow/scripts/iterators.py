"""Trains by short epochs and makes iterators of its own; tells which threads destroy them."""

import os
import threading
import weakref
from collections import Counter
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.data.ops import iterator_ops, multi_device_iterator_ops

EPOCHS = int(os.environ.get("EPOCHS", "60"))
destructions: Counter[str] = Counter()
resources: dict[int, Any] = {}
training = threading.get_ident()


def follow(kind: type, attribute: str) -> None:
    """Count the iterators of a class, and in which thread the resource of each is let go."""
    original = kind.__init__  # type: ignore[misc]

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        resource = getattr(self, attribute)
        if isinstance(resource, tf.__internal__.EagerTensor) and id(resource) not in resources:
            resources[id(resource)] = weakref.ref(resource, gone(id(resource), kind.__name__))

    kind.__init__ = __init__  # type: ignore[misc]


def gone(number: int, kind: str) -> Any:
    def call(_: object) -> None:
        del resources[number]
        here = "here" if threading.get_ident() == training else "elsewhere"
        destructions[f"{kind}-{here}"] += 1

    return call


def count(name: str) -> int:
    return len(os.listdir(f"/proc/self/{name}"))


class Threads(keras.callbacks.Callback):
    """Prints how many threads the process has after some epochs and at the end."""

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        if epoch in (EPOCHS // 10, EPOCHS - 1):
            print("THREADS", count("task"), flush=True)


follow(iterator_ops.OwnedIterator, "_iterator_resource")
follow(multi_device_iterator_ops.OwnedMultiDeviceIterator, "_multi_device_iterator_resource")
with tf.distribute.MirroredStrategy().scope():
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
x: np.ndarray = np.ones((40, 4), "float32")
y: np.ndarray = np.ones((40, 1), "float32")
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(40).batch(8).prefetch(2)
model.fit(data, epochs=EPOCHS, verbose=0, callbacks=[Threads()])
model.fit(data, epochs=3, verbose=0, validation_data=data)
model.evaluate(data, verbose=0)
model.predict(x, verbose=0)


def own_loops() -> None:
    for _ in range(5):
        for _ in data:
            break


def traced() -> tf.Tensor:
    total = tf.constant(0.0)
    for features, _ in data:
        total += tf.reduce_sum(features)
    return total


own_loops()
assert float(tf.function(traced)()) == 160.0
for where, number in sorted(destructions.items()):
    print("DESTROYED", where, number, flush=True)
