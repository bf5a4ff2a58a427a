"""Callbacks with profilers, threads and files that the process takes with it: each CASE is a fit.

    python process_state.py CASE [CASE ...]

``STOP`` is ``CASE:N``: stop after step N of that case.
"""

import importlib.util
import queue
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from restored import Steps, model, x, y

FOLDER = Path(tempfile.mkdtemp())
if importlib.util.find_spec("tensorboard") is None:
    # Keras needs the package for this alone.
    importlib.import_module("tensorflow.summary").scalar = lambda *_, **__: None  # type: ignore[attr-defined]


class Profiled(keras.callbacks.Callback):  # type: ignore[misc]
    """Profiles some steps with TensorFlow's profiler, of which a process has one."""

    active = False

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.seen += 1
        if self.seen == 3:
            tf.profiler.experimental.start(str(FOLDER))
            self.active = True

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.active and self.seen >= 12:
            tf.profiler.experimental.stop()
            self.active = False

    def on_train_end(self, logs: Any = None) -> None:
        print("ACTIVE", self.active, self.seen, flush=True)


class Threaded(keras.callbacks.Callback):  # type: ignore[misc]
    """Has a thread from its third step on, which it must wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: queue.Queue[float | None] = queue.Queue()
        self.thread = threading.Thread(target=self.work)
        self.started = False
        self.total = 0

    def work(self) -> None:
        while self.waiting.get() is not None:
            pass

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.total += 1
        if not self.started and self.total >= 3:
            self.thread.start()
            self.started = True
        self.waiting.put(logs["loss"])

    def on_train_end(self, logs: Any = None) -> None:
        self.waiting.put(None)
        self.thread.join()
        print("TOTAL", self.total, flush=True)


def board() -> keras.callbacks.Callback:
    return keras.callbacks.TensorBoard(str(FOLDER / "board"), update_freq=2, profile_batch=(3, 15))


CASES: dict[str, Callable[[], list[keras.callbacks.Callback]]] = {
    "board": lambda: [board(), Threaded()],
    "profiled": lambda: [Profiled(), Threaded()],
}

if __name__ == "__main__":
    restored: Any = sys.modules["restored"]
    for case in sys.argv[1:]:
        restored.current = case
        model().fit(x, y, batch_size=16, epochs=3, verbose=0, callbacks=[*CASES[case](), Steps()])
