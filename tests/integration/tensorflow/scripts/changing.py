"""Values that PyDatasets and callbacks change by other names than their attributes.

    python changing.py CASE [CASE ...]

Prints the loss of each step as ``restored`` does. ``STOP`` is ``CASE:N``: stop after step N.
"""

import array
import collections
import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from drawing import Part, fit
from restored import x, y

count = 0
weights = np.ones(16)
recent: collections.deque[int] = collections.deque(maxlen=3)
samples: dict[int, Any] = {}
difficulty, best, locked = 1.0, float("inf"), False
rows: tuple[str, ...] = ()
lock = threading.Lock()


class Globals(Part):
    """Changes globals, an array in place, and values of its class."""

    total = 0.0
    levels = bytearray(4)

    def change(self, part: np.ndarray) -> Any:
        global count
        count += 1
        weights[count % 16] *= 0.9
        recent.append(count)
        Globals.total += 0.5
        self.levels[count % 4] += 1
        return part * weights + sum(recent) / 20 + Globals.total / 10 + self.levels[1] / 10


class Attributes(Part):
    """Changes attributes that are no plain values, and a default."""

    def __init__(self, **workers: Any) -> None:
        super().__init__(**workers)
        self.seen = collections.deque([0], 4)
        self.numbers = array.array("d", [0.0])
        self.level = tf.Variable(0.0)

    def change(self, part: np.ndarray, calls: list[int] = [0]) -> Any:  # noqa: B006
        calls[0] += 1
        self.seen.append(calls[0])
        self.numbers[0] += 0.1
        self.level.assign_add(0.2)
        return part + sum(self.seen) / 20 + self.numbers[0] + float(self.level)


def enclosed() -> Part:
    calls, scales = 0, {"scale": 1.0}

    class Enclosed(Attributes):
        def change(self, part: np.ndarray, *more: Any) -> Any:
            nonlocal calls
            calls += 1
            scales["scale"] *= 0.95
            return super().change(part) * scales["scale"] + calls / 10

    return Enclosed()


@functools.lru_cache
def loaded(index: int) -> Any:
    return x[16 * index : 16 * index + 16] * 2


class Cached(Part):
    """Has caches that no checkpoint can hold, and reads what a callback changes."""

    def __getitem__(self, index: int) -> Any:
        if index not in samples:
            samples[index] = object(), index
        return (loaded(index) + samples[index][1]) * difficulty, y[16 * index : 16 * index + 16]


class Harder(keras.callbacks.Callback):  # type: ignore[misc]
    """Rebinds a global at the end of each epoch, and a value of its class at each step."""

    steps = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        Harder.steps += 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        global difficulty
        difficulty *= 1.5
        self.model.optimizer.learning_rate.assign(0.01 / Harder.steps)


class Locking(keras.callbacks.Callback):  # type: ignore[misc]
    """Counts in globals, with a flag about a lock that dies with the process."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        global best, rows, locked
        best, rows = min(best, logs["loss"]), (*rows[-2:], str(batch))
        if not locked:
            lock.acquire()
            locked = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        global locked
        lock.release()
        locked = False
        print("STEP", restored.current, "ends", best.hex(), rows, flush=True)


def two_fits() -> None:
    """A counter of an enclosing function goes on from one fit to the next."""
    steps = 0

    def note(batch: int, logs: Any) -> None:
        nonlocal steps
        steps += 1

    for number in range(2):
        fit(Part(), Locking(), keras.callbacks.LambdaCallback(on_train_batch_end=note))
        print("STEP", restored.current, "fit", number, steps, flush=True)
        steps += 100


CASES: dict[str, Callable[[], object]] = {
    "globals": lambda: fit(Globals()),
    "enclosed": lambda: fit(enclosed(), validation_data=Globals()),
    "cached": lambda: fit(Cached(), Harder()),
    "two_fits": two_fits,
}

restored: Any = sys.modules["restored"]

if __name__ == "__main__":
    for case in sys.argv[1:]:
        restored.current = case
        CASES[case]()
