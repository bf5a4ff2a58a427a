"""PyDatasets that draw random numbers and change themselves; ``restored`` has further cases.

    python drawing.py CASE [CASE ...]

``STOP`` is ``CASE:N``: stop after step N of that case.
"""

import random
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from restored import Steps, model, x, y

of_script = np.random.default_rng(9)
augment = keras.layers.GaussianNoise(0.5)
Arrays = tuple[np.ndarray, np.ndarray]


class Part(keras.utils.PyDataset):  # type: ignore[misc]
    """Six batches in order."""

    def __init__(self, **workers: Any) -> None:
        super().__init__(**workers)
        self.order = np.arange(96)

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Arrays:
        part = self.order[16 * index : 16 * index + 16]
        return self.change(x[part]), y[part]

    def change(self, part: np.ndarray) -> Any:
        return part


class Global(Part):
    def change(self, part: np.ndarray) -> Any:
        return part + np.random.normal(size=part.shape) + random.random()


class OfScript(Part):
    def change(self, part: np.ndarray) -> Any:
        return part + shifted(part)


def shifted(part: np.ndarray) -> Any:
    return of_script.normal(size=part.shape)


class Shuffling(Part):
    """Shuffles itself, and draws from a generator of its own."""

    def __init__(self, **workers: Any) -> None:
        super().__init__(**workers)
        self.random = np.random.default_rng(3)
        self.epoch = 0

    def change(self, part: np.ndarray) -> Any:
        return part * self.random.uniform(0.5, 1.5) + self.epoch

    def on_epoch_end(self) -> None:
        self.epoch += 1
        np.random.shuffle(self.order)


class Layered(Part):
    def change(self, part: np.ndarray) -> Any:
        drawn: np.ndarray = keras.random.uniform((16,)).numpy()
        return augment(part, training=True).numpy() + drawn


class Noting(keras.callbacks.Callback):  # type: ignore[misc]
    """Draws random numbers between the epochs."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        print("DRAWN", np.random.uniform(), random.random(), flush=True)


class Drawing(keras.callbacks.Callback):  # type: ignore[misc]
    """Draws random numbers in each step."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        print("DRAWN", np.random.uniform(), random.random(), flush=True)


def fit(data: Any, *more: Any, **arguments: Any) -> None:
    arguments = {"epochs": 3, "shuffle": False, **arguments}
    model().fit(data, verbose=0, callbacks=[*more, Steps()], **arguments)


def twice() -> None:
    data = Shuffling()
    fit(data, epochs=2)
    restored.current = "again"
    fit(data, epochs=2)


CASES: dict[str, Callable[[], object]] = {
    "global": lambda: fit(Global(), Noting()),
    "of_script": lambda: fit(OfScript(), shuffle=True),
    "shuffling": lambda: fit(Shuffling(), validation_data=Global()),
    "layered": lambda: fit(Layered()),
    "in_steps": lambda: fit(Global(), steps_per_epoch=3, epochs=6),
    "drawing": lambda: fit(Part(), Drawing()),
    "both": lambda: fit(Global(), Drawing()),
    "twice": twice,
}

if __name__ == "__main__":
    restored: Any = sys.modules["restored"]
    for case in sys.argv[1:]:
        restored.current = case
        {**restored.CASES, **CASES}[case]()
