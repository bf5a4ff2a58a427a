"""Scripts whose step or start is odd for a successor: ``successors.py KIND``.

Each prints its steps, so that a successor can be compared with a cold resume.
"""

import os
import sys
import tempfile

import keras
import tensorflow as tf
from told import Told, data, loss, show

KIND = sys.argv[1]
HIDDEN = tf.Variable(0.0, trainable=False)
LINES = os.environ.get("LINES_FILE", "")


class Odd(keras.Model):
    """A model whose training step does what KIND says."""

    def __init__(self) -> None:
        super().__init__(name=KIND)
        self.last = keras.layers.Dense(2)
        self.scale = 1.0

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.last(x) * self.scale

    def train_step(self, batch: tuple[tf.Tensor, tf.Tensor]) -> dict[str, tf.Tensor]:
        x, y = batch
        if KIND == "random":
            x += tf.random.normal(tf.shape(x), seed=3)
        if KIND == "hidden":
            HIDDEN.assign_add(1.0)
            x += HIDDEN
        if KIND == "printed":
            tf.print("PRINTED", tf.reduce_sum(x), output_stream=sys.stdout)
        if KIND == "python":
            x = tf.ensure_shape(tf.py_function(lambda one: one * 2, [x], tf.float32), x.shape)
        if WRITER is not None:
            with WRITER.as_default(step=1):
                tf.summary.scalar("sum", tf.reduce_sum(x))
        if KIND == "loop":
            x = tf.while_loop(lambda one: tf.norm(one) < 1.0, lambda one: one * 2, [x])[0]
        return super().train_step((x, y))


class Scaling(keras.callbacks.Callback):
    """Changes what a trace of the step reads, after the call has begun."""

    def on_train_begin(self, logs: object = None) -> None:
        self.model.scale = 3.0


keras.utils.set_random_seed(1)
WRITER = tf.summary.create_file_writer(os.environ["EVENTS"]) if KIND == "summary" else None
if KIND == "writes":
    print("WRITES", flush=True)
    with open(LINES, "a", encoding="utf-8") as file:
        file.write("begun\n")
if KIND == "temporary":
    with tempfile.NamedTemporaryFile("w", delete=False, prefix="of-a-successor-") as scratch:
        scratch.write("scratch")
    print("TEMPORARY", scratch.name)
if KIND == "raises":
    raise ValueError("no such data")
model = Odd()
model.compile("adam", loss(), run_eagerly=KIND == "eager")
callbacks = [Told(), *([Scaling()] if KIND == "scaled" else [])]
show(model.fit(*data(160), batch_size=32, epochs=3, verbose=0, callbacks=callbacks), model)
