"""Short fits whose trajectory a reshape would or would not keep, each with the hook's verdict."""

import contextlib
import sys

import keras
import numpy as np
import tensorflow as tf

x = np.zeros((32, 8), "float32")
y = np.zeros((32, 1), "float32")
raw = tf.data.Dataset.from_tensor_slices((x, y))
pipeline = raw.shuffle(32)
all_devices = tf.distribute.MirroredStrategy()
one_device = tf.distribute.MirroredStrategy(["CPU:0"])


class Noisy(keras.layers.Layer):
    def call(self, x):
        return x + tf.random.normal(tf.shape(x))


class Scaled(keras.layers.Layer):
    """By a variable that the layer holds in a dictionary of its own, or by one of the script's."""

    def __init__(self, scale=None):
        super().__init__()
        self.parts = {"scale": tf.Variable(1.0, trainable=False)} if scale is None else {}
        self.scale_of = (lambda: self.parts["scale"]) if scale is None else scale

    def call(self, x):
        return x * self.scale_of()


class Sequence(keras.utils.PyDataset):
    def __init__(self, **workers):
        super().__init__(**workers)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return x[:8], y[:8]


def generator():
    while True:
        yield x[:8], y[:8]


def batched(dataset):
    return {"x": dataset.batch(8)}


def nested(seed):
    dataset = tf.data.Dataset.range(2).flat_map(lambda part: raw.shard(2, part).shuffle(9, seed))
    return dataset.apply(tf.data.experimental.assert_cardinality(32))


def on_python(a, b):
    return tf.ensure_shape(tf.py_function(lambda v: v, [a], tf.float32), [8]), b


class Stepping(keras.Sequential):
    """A training step of its own, whose loss is what ``value`` makes of it."""

    mse = keras.losses.MeanSquaredError()

    def train_step(self, batch):
        inputs, wanted = batch
        with tf.GradientTape() as tape:
            value = self.value(wanted, self(inputs, training=True))
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(value, weights), weights)
        return {"loss": value}

    def value(self, wanted, found):
        return tf.reduce_mean((wanted - found) ** 2)


class Dividing(Stepping):
    def value(self, wanted, found):
        return tf.nn.compute_average_loss(tf.reduce_sum((wanted - found) ** 2, axis=1))


class ByLoss(Stepping):
    def value(self, wanted, found):
        return keras.losses.MeanSquaredError()(wanted, found)


class Adding(keras.Sequential):
    def compute_loss(self, *arguments, **more):
        return super().compute_loss(*arguments, **more) + tf.reduce_mean(self.weights[0] ** 2)


class Extending(keras.Sequential):
    def train_step(self, batch):
        return super().train_step(batch)


class Eager(keras.Sequential):
    def compile(self, *arguments, **more):
        super().compile(*arguments, run_eagerly=True, **more)


class Drawing(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        next(iter(drawn))


def sharded(dataset, policy):
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return {"x": dataset.with_options(options), "steps_per_epoch": 4}


def in_windows(**remainder):
    windows = raw.window(16).flat_map(
        lambda *parts: tf.data.Dataset.zip(parts).batch(8, **remainder)
    )
    return {"x": windows.repeat(), "steps_per_epoch": 4}


drawn = pipeline.batch(8)
sampled = tf.data.Dataset.sample_from_datasets([pipeline] * 2, seed=3).batch(8, drop_remainder=True)
unknown = raw.filter(lambda a, b: True).batch(8, drop_remainder=True)
whole_batches = raw.repeat().batch(16).rebatch(8, drop_remainder=True)
policies = tf.data.experimental.AutoShardPolicy
with all_devices.scope():
    of_script = tf.Variable(2.0, trainable=False, name="of_script")
arrays = {"x": x, "y": y, "batch_size": 8}
CASES = {
    "plain": ([], arrays),
    "pipeline": ([], batched(pipeline)),
    "no_strategy": ([], arrays, None),
    "own_devices": ([], arrays, one_device),
    "batch_normalization": ([keras.layers.BatchNormalization], arrays),
    "synchronized": ([lambda: keras.layers.BatchNormalization(synchronized=True)], arrays),
    "dropout": ([lambda: keras.Sequential([keras.layers.Dropout(0.5)])], arrays),
    "no_dropout": ([lambda: keras.layers.Dropout(0.0)], arrays),
    "noise": ([Noisy], arrays),
    "own_variable": ([Scaled], arrays),
    "strange_variable": ([lambda: Scaled(lambda: of_script)], arrays),
    "uneven": ([], {"x": x[:29], "y": y[:29], "batch_size": 8}),
    "odd_end": ([], {"x": raw.take(29).batch(8)}),
    "dropped_end": ([], {"x": raw.take(29).batch(8, drop_remainder=True)}),
    "endless": ([], {"x": raw.repeat().batch(8), "steps_per_epoch": 4}),
    "unknown_end": ([], {"x": raw.filter(lambda a, b: True).batch(8)}),
    "unknown_length": ([], {"x": unknown}),
    "told_length": ([], {"x": unknown.apply(tf.data.experimental.assert_cardinality(4))}),
    "length_in_steps": ([], {"x": unknown.repeat(), "steps_per_epoch": 4}),
    "unknown_alone": ([], {"x": unknown}, one_device),
    "rebatched": ([], {"x": raw.batch(16).rebatch(8).repeat(), "steps_per_epoch": 4}),
    "rebatched_alone": ([], {"x": raw.batch(16).rebatch(8)}, one_device),
    "rebatched_unsharded": ([], sharded(whole_batches, policies.OFF)),
    "rebatched_to_odd": ([], sharded(raw.repeat().batch(16).rebatch([8, 9]), policies.OFF)),
    "rebatched_without_strategy": ([], {"x": raw.batch(16).rebatch(8)}, None),
    "batched_inside": ([], in_windows()),
    "whole_batches_inside": ([], in_windows(drop_remainder=True)),
    "cached_order": ([], batched(pipeline.cache())),
    "shuffled_cache": ([], batched(raw.cache().shuffle(32))),
    "repeated_orders": ([], batched(pipeline.repeat(2))),
    "shuffled_repeats": ([], batched(raw.repeat(2).shuffle(32))),
    "inner_shuffle": ([], batched(nested(None))),
    "seeded_inner_shuffle": ([], batched(nested(3))),
    "random_map": ([], batched(pipeline.map(lambda a, b: (a + tf.random.uniform([8]), b)))),
    "python_map": ([], batched(pipeline.map(on_python))),
    "unordered": ([], batched(pipeline.map(lambda a, b: (a, b), 2, deterministic=False))),
    "ordered": ([], batched(pipeline.map(lambda a, b: (a, b), 2))),
    "sampled": ([], batched(tf.data.Dataset.sample_from_datasets([pipeline, pipeline]))),
    "seeded_sample": ([], {"x": sampled.apply(tf.data.experimental.assert_cardinality(8))}),
    "generator": ([], {"x": generator(), "steps_per_epoch": 4}),
    "shuffled_sequence": ([], {"x": Sequence()}),
    "sequence": ([], {"x": Sequence(), "shuffle": False}),
    "workers": ([], {"x": Sequence(workers=2), "shuffle": False}),
    "repeating_shuffle": (
        [],
        batched(raw.apply(tf.data.experimental.shuffle_and_repeat(32, 1))),
    ),
    "drawn_beside": ([], {"x": drawn, "callbacks": [Drawing()]}),
    "drawn_elsewhere": ([], {**batched(raw.shuffle(32)), "callbacks": [Drawing()]}),
    "own_step": ([], arrays, all_devices, Stepping),
    "dividing_step": ([], arrays, all_devices, Dividing),
    "step_by_loss": ([], arrays, all_devices, ByLoss),
    "own_loss": ([], arrays, all_devices, Adding),
    "extended_step": ([], arrays, all_devices, Extending),
    "step_without_strategy": ([], arrays, None, Stepping),
    "eager": ([], arrays, all_devices, Eager),
}


def watch(case):
    """Print the verdict on the next fit."""
    judge = sys.modules["_reshape_hook.hook.judge"]

    def after_first_step(model, verdict):
        verdict = original(model, verdict)
        print(f"VERDICT {case}|{verdict.kind}|{verdict.reason}", flush=True)
        return verdict

    judge.after_first_step = after_first_step


original = sys.modules["_reshape_hook.hook.judge"].after_first_step
for case, (layers, arguments, *more) in CASES.items():
    chosen = more[0] if more else all_devices
    kind = more[1] if len(more) > 1 else keras.Sequential
    with chosen.scope() if chosen is not None else contextlib.nullcontext():
        model = kind(
            [keras.layers.Input((8,)), *[layer() for layer in layers], keras.layers.Dense(1)]
        )
        model.compile("sgd", "mse")
    watch(case)
    model.fit(**arguments, verbose=0)
