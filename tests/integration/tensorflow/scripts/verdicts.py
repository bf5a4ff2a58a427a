"""Short fits whose trajectory a reshape would or would not keep, each with the hook's verdict."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

Arrays = tuple[np.ndarray, np.ndarray]
x: np.ndarray = np.zeros((32, 8), "float32")
y: np.ndarray = np.zeros((32, 1), "float32")
raw = tf.data.Dataset.from_tensor_slices((x, y))
pipeline = raw.shuffle(32)
all_devices = tf.distribute.MirroredStrategy()
one_device = tf.distribute.MirroredStrategy(["CPU:0"])


class Noisy(keras.layers.Layer):
    def call(self, x: tf.Tensor) -> tf.Tensor:
        return x + tf.random.normal(tf.shape(x))


class Scaled(keras.layers.Layer):
    """By a variable that the layer holds in a dictionary of its own, or by one of the script's."""

    def __init__(self, scale: Callable[[], tf.Variable] | None = None) -> None:
        super().__init__()
        self.parts = {"scale": tf.Variable(1.0, trainable=False)} if scale is None else {}
        self.scale_of: Callable[[], tf.Variable] = scale or (lambda: self.parts["scale"])

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return x * self.scale_of()


class Sequence(keras.utils.PyDataset):
    def __init__(self, **workers: int) -> None:
        super().__init__(**workers)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Arrays:
        return x[:8], y[:8]


class Changing(Sequence):
    def on_epoch_end(self) -> None:
        self.epoch = getattr(self, "epoch", 0) + 1


def generator() -> Iterator[Arrays]:
    while True:
        yield x[:8], y[:8]


def batched(dataset: tf.data.Dataset) -> dict[str, Any]:
    return {"x": dataset.batch(8)}


def nested(seed: int | None) -> tf.data.Dataset:
    dataset = tf.data.Dataset.range(2).flat_map(lambda part: raw.shard(2, part).shuffle(9, seed))
    return dataset.apply(tf.data.experimental.assert_cardinality(32))


def on_python(a: tf.Tensor, b: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.ensure_shape(tf.py_function(lambda v: v, [a], tf.float32), [8]), b


class Stepping(keras.Sequential):
    """A training step of its own, whose loss is what ``value`` makes of it."""

    mse = keras.losses.MeanSquaredError()

    def train_step(self, batch: tuple[tf.Tensor, tf.Tensor]) -> dict[str, tf.Tensor]:
        inputs, wanted = batch
        with tf.GradientTape() as tape:
            value = self.value(wanted, self(inputs, training=True))
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(value, weights), weights)
        return {"loss": value}

    def value(self, wanted: tf.Tensor, found: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean((wanted - found) ** 2)


class Dividing(Stepping):
    def value(self, wanted: tf.Tensor, found: tf.Tensor) -> tf.Tensor:
        return tf.nn.compute_average_loss(tf.reduce_sum((wanted - found) ** 2, axis=1))


class ByLoss(Stepping):
    def value(self, wanted: tf.Tensor, found: tf.Tensor) -> tf.Tensor:
        return keras.losses.MeanSquaredError()(wanted, found)


class Adding(keras.Sequential):
    def compute_loss(self, *arguments: Any, **more: Any) -> tf.Tensor:
        return super().compute_loss(*arguments, **more) + tf.reduce_mean(self.weights[0] ** 2)


class Extending(keras.Sequential):
    def train_step(self, batch: tuple[tf.Tensor, tf.Tensor]) -> dict[str, tf.Tensor]:
        return super().train_step(batch)


class Eager(keras.Sequential):
    def compile(self, *arguments: Any, **more: Any) -> None:
        super().compile(*arguments, run_eagerly=True, **more)


class Drawing(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        next(iter(drawn))


def sharded(
    dataset: tf.data.Dataset, policy: tf.data.experimental.AutoShardPolicy
) -> dict[str, Any]:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return {"x": dataset.with_options(options), "steps_per_epoch": 4}


def in_windows(**remainder: bool) -> dict[str, Any]:
    windows = raw.window(16).flat_map(
        lambda *parts: tf.data.Dataset.zip(parts).batch(8, **remainder)
    )
    return {"x": windows.repeat(), "steps_per_epoch": 4}


noise = keras.layers.GaussianNoise(0.5)
read = tf.Variable(2.0, trainable=False)
table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0)


def noisy(a: tf.Tensor, b: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return noise(a, training=True), b


def tabled(a: tf.Tensor, b: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    table.insert(tf.constant([1], tf.int64), tf.constant([2], tf.int64))
    return a, b


def hidden(dataset: tf.data.Dataset) -> tf.data.Dataset:
    parts = tf.data.Dataset.range(1).flat_map(lambda part: dataset)
    return parts.apply(tf.data.experimental.assert_cardinality(32))


class Case(NamedTuple):
    """Layers in the middle of a model, what it is fitted with, and where and how it is made."""

    layers: list[Callable[[], keras.layers.Layer]]
    arguments: dict[str, Any]
    strategy: tf.distribute.Strategy | None = all_devices
    kind: type[keras.Sequential] = keras.Sequential


drawn = pipeline.batch(8)
sampled = tf.data.Dataset.sample_from_datasets([pipeline] * 2, seed=3).batch(8, drop_remainder=True)
unknown = raw.filter(lambda a, b: True).batch(8, drop_remainder=True)
whole_batches = raw.repeat().batch(16).rebatch(8, drop_remainder=True)
generated = tf.data.Dataset.from_generator(
    lambda: zip(x, y, strict=True),
    output_signature=(tf.TensorSpec((8,), tf.float32), tf.TensorSpec(y.shape[1:], y.dtype)),
)
policies = tf.data.experimental.AutoShardPolicy
with all_devices.scope():
    of_script = tf.Variable(2.0, trainable=False, name="of_script")
arrays = {"x": x, "y": y, "batch_size": 8}
CASES = {
    "plain": Case([], arrays),
    "pipeline": Case([], batched(pipeline)),
    "half_precision": Case([lambda: keras.layers.Dense(8, dtype="mixed_float16")], arrays),
    "no_strategy": Case([], arrays, None),
    "own_devices": Case([], arrays, one_device),
    "batch_normalization": Case([keras.layers.BatchNormalization], arrays),
    "synchronized": Case([lambda: keras.layers.BatchNormalization(synchronized=True)], arrays),
    "dropout": Case([lambda: keras.Sequential([keras.layers.Dropout(0.5)])], arrays),
    "dropout_without_strategy": Case([lambda: keras.layers.Dropout(0.5)], arrays, None),
    "normalization_without_strategy": Case([keras.layers.BatchNormalization], arrays, None),
    "no_dropout": Case([lambda: keras.layers.Dropout(0.0)], arrays),
    "noise": Case([Noisy], arrays),
    "own_variable": Case([Scaled], arrays),
    "strange_variable": Case([lambda: Scaled(lambda: of_script)], arrays),
    "uneven": Case([], {"x": x[:29], "y": y[:29], "batch_size": 8}),
    "odd_end": Case([], {"x": raw.take(29).batch(8)}),
    "dropped_end": Case([], {"x": raw.take(29).batch(8, drop_remainder=True)}),
    "endless": Case([], {"x": raw.repeat().batch(8), "steps_per_epoch": 4}),
    "unknown_end": Case([], {"x": raw.filter(lambda a, b: True).batch(8)}),
    "unknown_length": Case([], {"x": unknown}),
    "told_length": Case([], {"x": unknown.apply(tf.data.experimental.assert_cardinality(4))}),
    "length_in_steps": Case([], {"x": unknown.repeat(), "steps_per_epoch": 4}),
    "unknown_alone": Case([], {"x": unknown}, one_device),
    "rebatched": Case([], {"x": raw.batch(16).rebatch(8).repeat(), "steps_per_epoch": 4}),
    "rebatched_alone": Case([], {"x": raw.batch(16).rebatch(8)}, one_device),
    "rebatched_unsharded": Case([], sharded(whole_batches, policies.OFF)),
    "rebatched_to_odd": Case([], sharded(raw.repeat().batch(16).rebatch([8, 9]), policies.OFF)),
    "rebatched_without_strategy": Case([], {"x": raw.batch(16).rebatch(8)}, None),
    "batched_inside": Case([], in_windows()),
    "whole_batches_inside": Case([], in_windows(drop_remainder=True)),
    "cached_order": Case([], batched(pipeline.cache())),
    "shuffled_cache": Case([], batched(raw.cache().shuffle(32))),
    "repeated_orders": Case([], batched(pipeline.repeat(2))),
    "shuffled_repeats": Case([], batched(raw.repeat(2).shuffle(32))),
    "inner_shuffle": Case([], batched(nested(None))),
    "seeded_inner_shuffle": Case([], batched(nested(3))),
    "hidden_shuffle": Case([], batched(hidden(raw.shuffle(9)))),
    "hidden_order": Case([], batched(hidden(raw.shuffle(9, reshuffle_each_iteration=False)))),
    "hidden_python": Case([], batched(hidden(raw.map(on_python)))),
    "hidden_generator": Case([], batched(hidden(generated))),
    "random_map": Case([], batched(pipeline.map(lambda a, b: (a + tf.random.uniform([8]), b)))),
    "python_map": Case([], batched(pipeline.map(on_python))),
    "noisy_map": Case([], batched(raw.map(noisy))),
    "noisy_map_before_threads": Case([], batched(raw.map(noisy).prefetch(4).shuffle(8))),
    "parallel_noisy_map": Case([], batched(raw.map(noisy, 2))),
    "parallel_scaling_map": Case([], batched(raw.map(lambda a, b: (a * read, b), 2))),
    "noise_in_threads": Case([], batched(raw.map(noisy).prefetch(4).map(noisy))),
    "hidden_parallel_noise": Case([], batched(hidden(raw.map(noisy, 2)))),
    "noise_of_step": Case([lambda: noise], batched(raw.map(noisy))),
    "noise_of_validation": Case(
        [],
        {
            "x": raw.map(noisy).repeat().batch(8),
            "steps_per_epoch": 4,
            "validation_data": raw.map(noisy).batch(8),
        },
    ),
    "filled_table": Case([], batched(raw.map(tabled))),
    "unordered": Case([], batched(pipeline.map(lambda a, b: (a, b), 2, deterministic=False))),
    "ordered": Case([], batched(pipeline.map(lambda a, b: (a, b), 2))),
    "sampled": Case([], batched(tf.data.Dataset.sample_from_datasets([pipeline, pipeline]))),
    "seeded_sample": Case([], {"x": sampled.apply(tf.data.experimental.assert_cardinality(8))}),
    "generator": Case([], {"x": generator(), "steps_per_epoch": 4}),
    "shuffled_sequence": Case([], {"x": Sequence()}),
    "shuffled_workers": Case([], {"x": Sequence(workers=2)}),
    "changed_while_read": Case([], {"x": Changing(), "steps_per_epoch": 2}),
    "changed_between": Case([], {"x": Changing()}),
    "sequence": Case([], {"x": Sequence(), "shuffle": False}),
    "workers": Case([], {"x": Sequence(workers=2), "shuffle": False}),
    "repeating_shuffle": Case(
        [],
        batched(raw.apply(tf.data.experimental.shuffle_and_repeat(32, 1))),
    ),
    "drawn_beside": Case([], {"x": drawn, "callbacks": [Drawing()]}),
    "drawn_elsewhere": Case([], {**batched(raw.shuffle(32)), "callbacks": [Drawing()]}),
    "own_step": Case([], arrays, all_devices, Stepping),
    "dividing_step": Case([], arrays, all_devices, Dividing),
    "step_by_loss": Case([], arrays, all_devices, ByLoss),
    "own_loss": Case([], arrays, all_devices, Adding),
    "extended_step": Case([], arrays, all_devices, Extending),
    "step_without_strategy": Case([], arrays, None, Stepping),
    "eager": Case([], arrays, all_devices, Eager),
}


def watch(case: str) -> None:
    """Print the verdict on the next fit."""
    exactness: Any = sys.modules["_reshape_hook.hook.exactness"]

    def after_first_step(model: keras.Model, *more: Any) -> Any:
        verdict = original(model, *more)
        print(f"VERDICT {case}|{verdict.kind}|{verdict.reason}", flush=True)
        return verdict

    exactness.after_first_step = after_first_step


original = sys.modules["_reshape_hook.hook.exactness"].after_first_step
for name, case in CASES.items():
    with case.strategy.scope() if case.strategy is not None else contextlib.nullcontext():
        inner = [layer() for layer in case.layers]
        model = case.kind([keras.layers.Input((8,)), *inner, keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    watch(name)
    model.fit(**case.arguments, verbose=0)
