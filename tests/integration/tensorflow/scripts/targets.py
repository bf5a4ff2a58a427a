"""Keras scripts that a target accuracy ends, one per case; each prints its steps and its end.

python targets.py CASE
"""

import os
import signal
import sys

import keras
import numpy as np

keras.utils.set_random_seed(1)
random = np.random.default_rng(0)
x = random.normal(size=(1280, 16)).astype("float32")
y = (x @ random.normal(size=(16, 4))).argmax(1)
half = random.random(1280) < 0.5
mixed = np.where(half, random.integers(0, 4, 1280), y)
"""Labels of the training: half of them are drawn, so that its accuracy stays below 0.65."""
STOP_AT = int(os.environ.get("STOP_AT", "0"))
STOP_IN_EPOCH_END = int(os.environ.get("STOP_IN_EPOCH_END", "0"))


def count_here(name: str) -> int:
    """Count in the environment, for this process: the hook restores counters of the script."""
    number = int(os.environ.get(name, "0")) + 1
    os.environ[name] = str(number)
    return number


class Steps(keras.callbacks.Callback):
    """Prints each step, and stops where it is asked to."""

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        steps = count_here("STEPS_HERE")
        print(f"STEP {self.model.name} {int(self.model.optimizer.iterations.numpy())}", flush=True)
        if steps == STOP_AT:
            os.kill(os.getpid(), signal.SIGTERM)

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        epochs = count_here("EPOCHS_HERE")
        if epochs == STOP_IN_EPOCH_END:
            os.kill(os.getpid(), signal.SIGTERM)


class Score(keras.callbacks.Callback):
    """A metric of the script's own, with values that are known beforehand."""

    def __init__(self, *values: float) -> None:
        super().__init__()
        self.values = values

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        assert logs is not None
        logs["val_score"] = self.values[epoch]


def model(name: str, *metrics: str) -> keras.Model:
    made = keras.Sequential(
        [keras.Input((16,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(4)], name=name
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(keras.optimizers.Adam(0.03), loss, metrics=list(metrics))
    return made


def show(history: keras.callbacks.History, made: keras.Model) -> None:
    print("EPOCHS", made.name, len(history.epoch), sorted(history.history), flush=True)
    print("STOPPED", made.name, made.stop_training, flush=True)


def validated() -> None:
    """Validation that is far better than the training."""
    made = model("validated", "accuracy")
    history = made.fit(
        *(x, mixed, 128),
        epochs=8,
        verbose=0,
        validation_data=(x[:256], y[:256]),
        callbacks=[Steps()],
    )
    show(history, made)
    print("AFTER", made.evaluate(x[:256], y[:256], verbose=0)[1] > 0.7, flush=True)


def scored() -> None:
    """Two models, one after the other, each with a score of its own; no validation data."""
    for name, values in (("first", (0.9, 0.5, 0.9, 0.9, 0.9)), ("second", (0.1, 0.9, 0.9, 0.1))):
        made = model(name, "accuracy")
        show(made.fit(x, y, 320, epochs=4, verbose=0, callbacks=[Score(*values), Steps()]), made)


def looped() -> None:
    """A loop of single epochs over a part for validation, which ends when the target is reached."""
    made = model("looped", "accuracy")
    for _ in range(6):
        made.fit(x, y, 128, epochs=1, verbose=0, validation_split=0.2, callbacks=[Steps()])
        if made.stop_training:
            break
    print("AFTER", made.stop_training, flush=True)


def unvalidated() -> None:
    """No validation data, and no accuracy in the first call."""
    made = model("plain")
    show(made.fit(x, y, 320, epochs=2, verbose=0, callbacks=[Steps()]), made)
    made = model("trained", "accuracy")
    show(made.fit(x, y, 128, epochs=6, verbose=0, callbacks=[Steps()]), made)


globals()[sys.argv[1]]()
