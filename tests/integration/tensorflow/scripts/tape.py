"""A GradientTape loop, elastic by three lines: those with ``job``.

Prints each step with its loss to the last bit, and a digest of the weights at the end.
"""

import argparse
import hashlib
import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from reshape_sidecar import session

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--samples", type=int, default=96)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--dropout", type=float, default=0.0)
parser.add_argument("--inner", action="store_true", help="a loop over job.epochs around it")
parser.add_argument("--draw", action="store_true", help="the body draws of NumPy")
parser.add_argument("--lost", action="store_true", help="a variable that job does not get")
parser.add_argument("--plain", action="store_true", help="no strategy")
parser.add_argument("--bug", default="")
options = parser.parse_args()
if options.bug:
    import tape_bugs

    tape_bugs.plant(options.bug)

job = session.start()
strategy = tf.distribute.get_strategy() if options.plain else tf.distribute.MirroredStrategy()
keras.utils.set_random_seed(3)
random = np.random.default_rng(0)
x = random.normal(size=(options.samples, 6)).astype("float32")
y = x.sum(1, keepdims=True).astype("float32")
lost = tf.Variable(0.0)


def noised(number: Any, sample: Any) -> Any:
    features, target = sample
    noise = tf.random.stateless_normal([6], seed=[5, tf.cast(number, tf.int32)])
    return features + 0.01 * noise, target


data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(options.samples).enumerate()
data = data.map(noised).batch(options.batch, drop_remainder=True).prefetch(2)
batches = data if options.plain else strategy.experimental_distribute_dataset(data)
with strategy.scope():
    layers = [keras.Input((6,)), keras.layers.Dense(options.width, "relu")]
    model = keras.Sequential(
        [*layers, keras.layers.Dropout(options.dropout), keras.layers.Dense(1)]
    )
    optimizer = keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.05, 40))
    mean = keras.metrics.Mean()


def on_a_device(batch: Any) -> Any:
    features, target = batch
    with tf.GradientTape() as tape:
        error = tf.square(model(features, training=True) - target)
        loss = tf.reduce_sum(error) / options.batch
    optimizer.apply_gradients(
        zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
    )
    mean.update_state(error)
    return loss


@tf.function  # type: ignore[untyped-decorator]
def train(batch: Any, scale: Any) -> Any:
    if options.lost:
        lost.assign_add(1.0)
        scale += 0.001 * lost
    return scale * strategy.reduce("SUM", strategy.run(on_a_device, (batch,)), axis=None)


def body(batch: Any) -> None:
    scale = np.random.random() if options.draw else 1.0
    loss = float(train(batch, tf.constant(scale, tf.float32)))
    print(f"STEP {job.step + 1} {loss.hex()} {float(mean.result()).hex()}", flush=True)
    job.metrics(loss=loss)


parts: dict[str, Any] = {"model": model, "optimizer": optimizer, "state": mean}
if options.inner:
    for epoch in job.epochs(options.epochs):
        mean.reset_state()
        for batch in job.batches(batches, **parts):
            body(batch)
        print(f"EPOCH {epoch}", flush=True)
else:
    for batch in job.batches(batches, epochs=options.epochs, **parts):
        body(batch)
weights = hashlib.sha256(b"".join(one.tobytes() for one in model.get_weights())).hexdigest()
print(f"END {weights} {int(optimizer.iterations.numpy())}", flush=True)
