"""Prints how many of two devices each of several models uses, by the look of the hook."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from reshape_sidecar.hook import used_devices

X: Any = np.ones((64, 4), "float32")


def model(layer: type[Any] | None = None, **compiled: Any) -> Any:
    made = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(1) if layer is None else layer()]
    )
    made.compile("sgd", "mse", **compiled)
    made.fit(X, X[:, :1], batch_size=8, verbose=0)
    return made


class OnSecond(keras.layers.Layer):  # type: ignore[misc]
    """A layer that computes on the second device."""

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(shape[-1], 1))

    @tf.function  # type: ignore[untyped-decorator]
    def inner(self, x: Any) -> Any:
        with tf.device("CPU:1"):
            return tf.matmul(x, self.kernel)

    def call(self, x: Any) -> Any:
        return self.inner(x)


def said(name: str, found: Any) -> None:
    print("USED", name, used_devices.count(found), flush=True)


said("plain", plain := model())
said("second", model(OnSecond))
said("eager", model(run_eagerly=True))
with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
    said("child", plain)
    child.communicate(b"\n")
said("again", plain)
both = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
said("unused strategy", plain)
with both.scope():
    said("both", model())
del both
