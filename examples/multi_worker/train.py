"""A training loop under MultiWorkerMirroredStrategy, with the session API of Reshape.

    python train.py --steps 300

Reshape sets TF_CONFIG anew at each start; started by hand without it, one worker trains alone.
Keras 3's ``fit`` fails under this strategy (keras-team/keras#20585), so the loop is written out.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from reshape_sidecar import session

GLOBAL_BATCH = 64
FEATURES = 10


def samples(count: int = 2048) -> tuple[np.ndarray, np.ndarray]:
    """Points in ten dimensions, and a noisy sum of them."""
    random = np.random.default_rng(0)
    x = random.normal(size=(count, FEATURES)).astype("float32")
    y = x @ np.arange(FEATURES, dtype="float32") / FEATURES + 0.1 * random.normal(size=count)
    return x, y.astype("float32")[:, None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()

    # First: the strategy has to be there before any operation of TensorFlow.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    job = session.start(total_steps=options.steps, save_every_steps=50)
    with strategy.scope():
        weights = tf.Variable(tf.zeros((FEATURES, 1)))
        bias = tf.Variable(tf.zeros((1,)))
    checkpoint = tf.train.Checkpoint(weights=weights, bias=bias)
    if job.checkpoint is not None:
        checkpoint.read(str(job.checkpoint / "state")).assert_existing_objects_matched()
        print(f"going on after step {job.step}", flush=True)

    # A fixed order of all batches: "the first job.step of them" is a position in it, and the
    # strategy splits each global batch among the workers.
    data = tf.data.Dataset.from_tensor_slices(samples()).shuffle(2048, seed=1)
    data = data.batch(GLOBAL_BATCH, drop_remainder=True).repeat().skip(job.step)
    sharding = tf.data.Options()
    sharding.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    batches = iter(strategy.experimental_distribute_dataset(data.with_options(sharding)))

    @tf.function
    def train(batch):
        def on_each_device(x, y):
            with tf.GradientTape() as tape:
                error = tf.linalg.matmul(x, weights) + bias - y
                loss = tf.reduce_sum(tf.square(error)) / GLOBAL_BATCH
            slopes = tape.gradient(loss, [weights, bias])
            everywhere = tf.distribute.get_replica_context().all_reduce("SUM", slopes)
            for variable, slope in zip((weights, bias), everywhere, strict=True):
                variable.assign_sub(0.05 * slope)
            return loss

        return strategy.reduce("SUM", strategy.run(on_each_device, batch), axis=None)

    def save(folder):
        checkpoint.write(str(folder / "state"))

    last = job.total_steps or options.steps
    while job.step < last:
        loss = float(train(next(batches)))  # read: the step is over on every worker
        print(f"step {job.step + 1} loss {loss:.6f}", flush=True)
        job.step_done(save, loss=loss)
    job.finished(save)


if __name__ == "__main__":
    main()
