"""Keras scripts in many forms, one per case; each prints every step's own loss.

    python cases.py CASE [CASE ...]

``told`` has what they share, and stops them.
"""

import collections
import gc
import os
import sys
import tempfile

import keras
import numpy as np
import tensorflow as tf
from told import Told, Validation, data, dense, loss, mirrored, show

DEVICES = int(os.environ.get("PLAIN_DEVICES", "0"))


def arrays() -> None:
    """Arrays; dropout, Adam, callbacks that change the rate, validation."""
    with mirrored().scope():
        model = dense("arrays", "adam", keras.layers.Dense(16, "relu"), keras.layers.Dropout(0.3))
    callbacks = [
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
        keras.callbacks.ReduceLROnPlateau("loss", patience=1, min_delta=0.5),
        keras.callbacks.EarlyStopping("val_loss", patience=20),
        Told(),
    ]
    x, y = data()
    show(
        model.fit(x, y, 32, epochs=3, verbose=0, callbacks=callbacks, validation_split=0.2),
        model,
    )


def no_callbacks() -> None:
    """Arrays that are drawn over epochs, a rate schedule, no callback at all."""
    with mirrored().scope():
        schedule = keras.optimizers.schedules.CosineDecay(0.1, 40)
        model = dense("steps", keras.optimizers.SGD(schedule, momentum=0.9))
    x, y = data()
    show(model.fit(x, y, batch_size=32, epochs=3, verbose=0, steps_per_epoch=3), model)


def pipeline() -> None:
    """A shuffled pipeline, one callback object, augmentation and normalisation layers."""
    with mirrored().scope():
        model = dense(
            "pipeline",
            "rmsprop",
            keras.layers.GaussianNoise(0.1),
            keras.layers.Dense(16, "relu"),
            keras.layers.BatchNormalization(),
        )
    dataset = tf.data.Dataset.from_tensor_slices(data()).shuffle(100).batch(32)
    show(model.fit(dataset, epochs=3, verbose=0, callbacks=Told()), model)


class OwnList(keras.callbacks.CallbackList):
    """A list of callbacks that the script has made itself."""


def repeated() -> None:
    """A pipeline without an end, cached in a file, a CallbackList, two steps per execution, no
    strategy."""
    model = dense("repeated", "adam", steps_per_execution=2)
    dataset = tf.data.Dataset.from_tensor_slices(data()).cache(os.environ.get("CACHE", ""))
    dataset = dataset.shuffle(100).repeat().batch(32)
    callbacks = OwnList([Told()], add_history=True, model=model, epochs=3, steps=6, verbose=0)
    show(model.fit(dataset, epochs=3, verbose=0, steps_per_epoch=6, callbacks=callbacks), model)


class Subclassed(keras.Model):
    """A model of its own, unbuilt, with its own training step."""

    def __init__(self) -> None:
        super().__init__(name="subclassed")
        self.first = keras.layers.Dense(8, "relu")
        self.drop = keras.layers.Dropout(0.2)
        self.last = keras.layers.Dense(2)

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        return self.last(self.drop(self.first(x), training=training))

    def train_step(self, batch: tuple[tf.Tensor, tf.Tensor]) -> dict[str, tf.Tensor]:
        x, y = batch
        with tf.GradientTape() as tape:
            value = self.compute_loss(y=y, y_pred=self(x, training=True))
        gradients = tape.gradient(value, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        self._loss_tracker.update_state(value)
        return {"own_loss": value}


def unknown_length() -> None:
    """No strategy, a length that shows at the end of the first epoch, an own training step."""
    model = Subclassed()
    model.compile("adam", loss())
    dataset = tf.data.Dataset.from_tensor_slices(data()).filter(lambda x, y: True)
    dataset = dataset.shuffle(100).batch(32)
    show(model.fit(dataset, epochs=3, verbose=0, callbacks=[Told()]), model)


class Sequence(keras.utils.PyDataset):
    """Batches by index."""

    def __init__(self) -> None:
        super().__init__()
        self.x, self.y = data()

    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        part = slice(index * 32, index * 32 + 32)
        return self.x[part], self.y[part]


def sequence() -> None:
    """A PyDataset in order, and no strategy."""
    model = dense("sequence", "adam")
    show(model.fit(Sequence(), epochs=2, verbose=0, shuffle=False, callbacks=[Told()]), model)


def several() -> None:
    """Several fits: a model, a second one that learns from it, and that one compiled anew."""
    x, y = data(130)
    teacher = dense("teacher", "adam", keras.layers.Dropout(0.2))
    validation = Validation(x, y)
    turn = teacher.fit(
        x, y, 32, epochs=2, verbose=0, callbacks=[Told()], validation_data=validation
    )
    show(turn, teacher)
    y = teacher.predict(x, verbose=0, callbacks=[Told()]).argmax(1)
    strategy = mirrored()
    with strategy.scope():
        model = dense("student", keras.optimizers.SGD(0.1, momentum=0.9))
    show(model.fit(x, y, 32, epochs=2, verbose=0, callbacks=[Told()]), model)
    with strategy.scope():
        model.compile("adam", loss())
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(50).batch(32)
    stop = keras.callbacks.EarlyStopping(
        "loss", patience=1, min_delta=0.01, restore_best_weights=True
    )
    show(model.fit(dataset, epochs=3, verbose=0, callbacks=[Told(), stop]), model)


class Pair(keras.Model):
    """Two networks with an optimizer each, no ``call``, and state in attributes of its own."""

    def __init__(self) -> None:
        super().__init__(name="pair")
        self.maker = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(8)])
        self.critic = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
        self.noise = tf.random.Generator.from_seed(5)
        self.counts = {"steps": [tf.Variable(1.0)]}
        self.title = tf.Variable("pair")

    def compile(
        self, makes: keras.optimizers.Optimizer, judges: keras.optimizers.Optimizer
    ) -> None:
        super().compile(keras.optimizers.Adam())
        self.makes, self.judges = makes, judges

    def train_step(self, batch: tuple[tf.Tensor, tf.Tensor]) -> dict[str, tf.Tensor]:
        print("TRACED", flush=True)
        x, _ = batch
        noise = self.noise.normal((tf.shape(x)[0], 4))
        with tf.GradientTape(persistent=True) as tape:
            judged = self.critic(self.maker(noise))
            criticized = tf.reduce_mean(tf.nn.softplus(-self.critic(x)) + tf.nn.softplus(judged))
            made = tf.reduce_mean(tf.nn.softplus(-judged)) * self.counts["steps"][0]
        for own, optimizer, value in (
            (self.critic, self.judges, criticized),
            (self.maker, self.makes, made),
            # The model's own optimizer trains a part of it only.
            (self.maker.layers[-1], self.optimizer, made),
        ):
            weights = own.trainable_variables
            optimizer.apply(tape.gradient(value, weights), weights)
        self.counts["steps"][0].assign_add(0.1)
        self._loss_tracker.update_state(criticized + made)
        return {"loss": self._loss_tracker.result()}


def pair() -> None:
    """A model as those that are trained against each other are written, without a strategy."""
    model = Pair()
    model.compile(keras.optimizers.Adam(0.01), keras.optimizers.RMSprop(0.02))
    x, y = data()
    show(model.fit(x, y, 32, epochs=2, verbose=0, callbacks=[Told()]), model)


def stateful() -> None:
    """A layer whose state goes on from batch to batch, and through a validation."""
    layers = [keras.layers.GRU(6, stateful=True), keras.layers.Dense(2)]
    model = keras.Sequential([keras.layers.Input(batch_shape=(32, 4, 2)), *layers], name="stateful")
    model.compile("adam", loss())
    x, y = data(256)
    x = x.reshape(256, 4, 2)
    validation = Validation(x[:96], y[:96])
    show(
        model.fit(
            x,
            y,
            batch_size=32,
            epochs=2,
            verbose=0,
            shuffle=False,
            validation_data=validation,
            callbacks=[Told()],
        ),
        model,
    )


class Averaged(keras.callbacks.Callback):
    """Validates a mean of the weights, and counts: a script's own, which sees no batch twice."""

    def __init__(self) -> None:
        super().__init__()
        self.mean: list[np.ndarray] | None = None
        self.own: list[np.ndarray] | None = None
        self.batches = 0

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        weights = self.model.get_weights()
        mean = weights if self.mean is None else self.mean
        self.mean = [0.5 * (old + new) for old, new in zip(mean, weights, strict=True)]

    def on_test_begin(self, logs: dict[str, float] | None = None) -> None:
        self.own = self.model.get_weights()
        self.model.set_weights(self.mean)

    def on_test_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        self.batches += 1

    def on_test_end(self, logs: dict[str, float] | None = None) -> None:
        self.model.set_weights(self.own)


def averaged() -> None:
    """A callback that puts other weights into the model for the time of a validation."""
    x, y = data(160)
    model, averages = dense("averaged", "adam"), Averaged()
    validation = Validation(x, y)
    callbacks = [Told(), averages]
    show(
        model.fit(x, y, 32, epochs=3, verbose=0, callbacks=callbacks, validation_data=validation),
        model,
    )
    print("HISTORY counted", averages.batches)


def in_turn() -> None:
    """A call for each epoch, as loops of their own are written; then a longer one."""
    x, y = data(96)
    model = dense("in_turn", "adam", keras.layers.Dropout(0.1))
    for epoch in range(3):
        turn = model.fit(
            x, y, 32, initial_epoch=epoch, epochs=epoch + 1, verbose=0, callbacks=[Told()]
        )
        show(turn, model)
    show(model.fit(x, y, 32, epochs=2, verbose=0, callbacks=[Told()]), model)


class Notes(keras.callbacks.Callback):
    """Notes into a list that it was given, and into collections of its own."""

    def __init__(self, notes: list[float]) -> None:
        super().__init__()
        self.notes = notes
        self.newest: collections.deque[int] = collections.deque(maxlen=4)
        self.by_batch: collections.defaultdict[int, int] = collections.defaultdict(int)

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        self.notes.append(float(batch))
        self.newest.append(batch)
        self.by_batch[batch] += 1


def read_back() -> None:
    """Callbacks that the script reads, also those of a call that is over, and a logger's file."""
    x, y = data(160)
    notes: list[float] = []
    stopping = keras.callbacks.EarlyStopping("loss", patience=1, min_delta=9, start_from_epoch=1)
    noting = Notes(notes)
    model = dense("first", "adam")
    show(model.fit(x, y, 32, epochs=9, verbose=0, callbacks=[Told(), stopping, noting]), model)
    epochs = stopping.stopped_epoch + stopping.best_epoch - 1
    model = dense("second", "adam")
    with tempfile.TemporaryDirectory() as folder:
        path = os.environ.get("LOGGED", folder + "/log.csv")
        logger = keras.callbacks.CSVLogger(path)
        callbacks = [Told(), noting, logger]
        show(model.fit(x, y, 32, epochs=epochs, verbose=0, callbacks=callbacks), model)
        with open(path) as file:
            print("HISTORY logged", *[line.split(",")[0] for line in file])
    print("HISTORY notes", *notes, *noting.newest, sum(noting.by_batch.values()))


def shared() -> None:
    """One shuffled pipeline for training and validation, and for two calls; shuffled twice."""
    whole = tf.data.Dataset.from_tensor_slices(data(160)).shuffle(160, seed=5)
    training, validation = whole.skip(32).shuffle(20, seed=6).batch(32), whole.take(32).batch(32)
    with mirrored().scope():
        model = dense("shared", "adam")
    for epochs in (1, 2):
        turn = model.fit(
            training, epochs=epochs, verbose=0, callbacks=[Told()], validation_data=validation
        )
        show(turn, model)


def part_validated() -> None:
    """Shuffled validation data of which an epoch sees a part; a callback has data of its own."""
    training = tf.data.Dataset.from_tensor_slices(data(64)).shuffle(64).batch(32)
    validation = tf.data.Dataset.from_tensor_slices(data(96)).shuffle(96).batch(16)
    other = tf.data.Dataset.from_tensor_slices(data(32)).batch(32)
    with mirrored().scope():
        model = dense("part", "adam")
    looking = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: model.evaluate(other, verbose=0)
    )
    turn = model.fit(
        training,
        epochs=4,
        verbose=0,
        callbacks=[Told(), looking],
        validation_data=validation,
        validation_steps=4,
    )
    show(turn, model)


def tried(units: int, x: np.ndarray, y: np.ndarray) -> list[float]:
    """Train a model that nobody has any more when this is over; how good it was."""
    model = dense(f"tried_{units}", "adam", keras.layers.Dense(units))
    model.fit(x, y, 32, epochs=2, verbose=0, callbacks=[Told()])
    return model.evaluate(x, y, verbose=0)


def searched() -> None:
    """A search as scripts have it: a call that may fail, and models that are dropped."""
    x, y = data(96)
    try:
        dense("failing", "adam").fit(x[:, :3], y, verbose=0)
    except ValueError as error:
        print("HISTORY failed", type(error).__name__)
    for units in (4, 8, 12):
        print("HISTORY found", *tried(units, x, y))
        keras.backend.clear_session()
        gc.collect()


CASES = {
    case.__name__: case
    for case in (
        arrays,
        no_callbacks,
        pipeline,
        repeated,
        unknown_length,
        sequence,
        several,
        pair,
        stateful,
        averaged,
        in_turn,
        read_back,
        shared,
        part_validated,
        searched,
    )
}


def main() -> None:
    if DEVICES:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(DEVICES)]
        )
    for name in sys.argv[1:]:
        print("CASE", name)
        keras.backend.clear_session()
        keras.utils.set_random_seed(3)
        CASES[name]()


if __name__ == "__main__":
    main()
