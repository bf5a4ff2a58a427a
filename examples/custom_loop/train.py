"""A training loop of its own on several devices, with the session API of Reshape.

    python train.py --steps 300

Started by hand it trains from the beginning and saves nothing.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

from reshape_sidecar import session

BATCH = 64


def samples(count: int = 2048, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Points in ten dimensions and on which side of a curved surface they lie."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, 10)).astype("float32")
    return x, (np.sin(x).sum(1) > 0).astype("float32")[:, None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--evaluate-every", type=int, default=0, help="steps; 0: never")
    options = parser.parse_args()

    keras.utils.set_random_seed(5)
    job = session.start(total_steps=options.steps)
    strategy = tf.distribute.MirroredStrategy()
    with strategy.scope():
        model = keras.Sequential(
            [keras.layers.Input((10,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(1)]
        )
        optimizer = keras.optimizers.Adam(0.01)
        optimizer.build(model.trainable_variables)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    if job.checkpoint is not None:
        checkpoint.read(str(job.checkpoint / "state")).assert_existing_objects_matched()
        print(f"going on after step {job.step}", flush=True)

    # A fixed order of all batches, so that "the first job.step of them" is a position in it.
    data = tf.data.Dataset.from_tensor_slices(samples()).shuffle(2048, seed=1)
    data = data.batch(BATCH, drop_remainder=True).repeat().skip(job.step)

    @tf.function
    def train(batch):
        def on_each_device(x, y):
            with tf.GradientTape() as tape:
                logits = model(x, training=True)
                each = keras.losses.binary_crossentropy(y, logits, from_logits=True)
                loss = tf.reduce_sum(each) / BATCH
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply(gradients, model.trainable_variables)
            return loss

        losses = strategy.run(on_each_device, batch)
        return strategy.reduce("SUM", losses, axis=None)

    def save(folder):
        checkpoint.write(str(folder / "state"))

    def accuracy():
        x, y = samples(512, seed=1)
        return float(np.mean((model(x).numpy() > 0) == (y > 0.5)))

    every = options.evaluate_every
    batches = iter(strategy.experimental_distribute_dataset(data))
    while job.step < job.total_steps:
        if every and job.step % every == 0 and job.evaluated("val_accuracy", accuracy()):
            break  # the record's target_accuracy is reached
        loss = float(train(next(batches)))
        print(f"step {job.step + 1} loss {loss:.6f}", flush=True)
        job.step_done(save, loss=loss)
    job.finished(save)


if __name__ == "__main__":
    main()
