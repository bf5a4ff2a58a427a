"""Scripts with state that no checkpoint holds; each prints its losses and what it keeps itself.

STOP_AT stops it at a step of this process; the hook then saves and leaves.
"""

from __future__ import annotations

import collections
import functools
import itertools
import logging
import os
import signal
import sys
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

NAME = sys.argv[1]
STOP_AT = int(os.environ.get("STOP_AT", "0"))
EPOCHS = 2
os.chdir(os.environ["FOLDER"])
keras.utils.set_random_seed(1)
r = np.random.default_rng(0)
w = r.normal(size=(16, 4))
x = r.normal(size=(320, 16)).astype("float32")
y = (x @ w).argmax(1)
m = keras.Sequential(
    [keras.Input((16,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(4)]
)
m.compile(
    "adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
)
steps, best = 0, float("inf")


class S(keras.callbacks.Callback):  # type: ignore[misc]
    """Prints each step, and stops."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.count += 1
        print("STEP", int(self.model.optimizer.iterations.numpy()), logs["loss"], flush=True)
        if STOP_AT and int(self.model.optimizer.iterations.numpy()) == STOP_AT:
            os.kill(os.getpid(), signal.SIGTERM)


def fit(*callbacks: keras.callbacks.Callback, data: Any = None) -> None:
    arguments = {"x": x, "y": y} if data is None else {"x": data}
    m.fit(**arguments, epochs=EPOCHS, verbose=0, shuffle=False, callbacks=[*callbacks, S()])


def each(function: Any) -> keras.callbacks.Callback:
    return keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: function(logs))


class Noisy(keras.utils.PyDataset):  # type: ignore[misc]
    """Adds noise that it draws."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        part = slice(index * 32, index * 32 + 32)
        return x[part] + self.noise(index).astype("float32"), y[part]

    def noise(self, index: int) -> Any:
        return np.random.normal(size=(32, 16))


class ByIndex(Noisy):
    """Draws by index: the same in every process."""

    def noise(self, index: int) -> Any:
        return np.random.default_rng(index).normal(size=(32, 16))


class OwnGenerator(Noisy):
    """Draws from a generator of its own."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.rng = np.random.default_rng(3)

    def noise(self, index: int) -> Any:
        return self.rng.normal(size=(32, 16))


rates = itertools.cycle([0.5, 1.0, 1.5])
arrays: dict[int, Any] = {}
drawn: dict[int, Any] = {}
level = 0


class Cycling(Noisy):
    """Reads an endless iterator."""

    def noise(self, index: int) -> Any:
        return np.full((32, 16), next(rates))


class Rising(Noisy):
    """Counts in a global name."""

    def noise(self, index: int) -> Any:
        global level
        level += 1
        return np.full((32, 16), level / 100)


@functools.lru_cache
def by_index(index: int) -> Any:
    return np.full((32, 16), index / 10)


class Caching(Noisy):
    """Caches what follows from the index, in values that no checkpoint can hold."""

    def noise(self, index: int) -> Any:
        arrays.setdefault(index, (object(), by_index(index)))
        return arrays[index][1]


class CachingDraws(Noisy):
    """Caches what it has drawn."""

    def noise(self, index: int) -> Any:
        if index not in drawn:
            drawn[index] = object(), np.random.normal(size=(32, 16))
        return drawn[index][1]


def raise_level(logs: Any) -> None:
    global level
    level += 10


class Tally:
    """An object of the script."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def add(self, loss: float) -> None:
        self.seen.append(loss)


class Tallying(keras.callbacks.Callback):  # type: ignore[misc]
    """Has an object that no checkpoint can hold."""

    def __init__(self) -> None:
        super().__init__()
        self.tally = Tally()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.tally.add(logs["loss"])


class Keeping(keras.callbacks.Callback):  # type: ignore[misc]
    """Has a list that the script shares: the hook restores both."""

    def __init__(self, losses: list[float]) -> None:
        super().__init__()
        self.losses = losses

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.losses.append(logs["loss"])
        shared.append(logs["loss"])


class Counting(keras.callbacks.Callback):  # type: ignore[misc]
    """Counts in its class."""

    counts: ClassVar[collections.Counter[str]] = collections.Counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.counts["epochs"] += 1


def lists() -> None:
    losses: list[float] = []
    with open("lists.txt", "a") as notes:
        fit(
            each(lambda logs: losses.append(logs["loss"])),
            each(lambda logs: notes.write("step\n")),
        )
    print("LIST", len(losses))


def truncated() -> None:
    f = open("log", "w", buffering=1)  # noqa: SIM115
    note = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: f.write(f"{epoch} {logs['loss']}\n")
    )
    fit(note)
    f.close()


def improve(logs: Any) -> None:
    global best, steps
    best, steps = min(best, logs["loss"]), steps + 1


def rebound() -> None:
    fit(each(improve))


def tally() -> None:
    fit(Tallying())


def in_class() -> None:
    fit(Counting())


shared: list[float] = []


def restored_list() -> None:
    keeping = Keeping(shared)
    fit(keeping)
    print("LIST", len(shared))


def only_read() -> None:
    settings: dict[str, Any] = {"scale": 2.0, "names": ["loss"]}
    fit(each(lambda logs: settings["scale"] * logs[settings["names"][0]]))


def appended() -> None:
    with open("appended.txt", "a") as notes:
        notes.write("begin\n")
        fit(each(lambda logs: notes.write("step\n")))


def appended_between() -> None:
    with open("between.txt", "a") as notes:
        fit(each(lambda logs: notes.write("step\n")))
        print("between fits", file=notes)
        fit(each(lambda logs: notes.write("step\n")))


def appended_in_fit() -> None:
    logger = logging.getLogger("in_fit")
    logger.addHandler(logging.FileHandler("in_fit.log"))
    with open("in_fit.txt", "a") as notes:
        for _ in range(2):
            fit(each(lambda logs: notes.write("step\n")), each(lambda logs: logger.warning("step")))


def logged() -> None:
    logging.basicConfig(filename="run.log", filemode="w", level=logging.INFO)
    fit(each(lambda logs: logging.info("loss %s", logs["loss"])))


def written_each_time() -> None:
    def write(logs: Any) -> None:
        with open("notes.txt", "a") as notes:
            notes.write("step\n")

    fit(each(write))


def of_keras() -> None:
    with open(__file__) as itself, tf.summary.create_file_writer("events").as_default():
        fit(
            keras.callbacks.CSVLogger("log.csv"),
            keras.callbacks.ModelCheckpoint("best.keras", save_best_only=True, monitor="loss"),
        )
        itself.read()


def workers() -> None:
    fit(data=Noisy(workers=2))


def processes() -> None:
    fit(data=OwnGenerator(workers=1, use_multiprocessing=True))


def workers_by_index() -> None:
    fit(data=ByIndex(workers=2))


def endless() -> None:
    fit(data=Cycling())


def with_callback() -> None:
    fit(each(raise_level), data=Rising())


def counted() -> None:
    fit(data=Rising())


def counted_by_workers() -> None:
    fit(data=Rising(workers=2))


def caching() -> None:
    fit(data=Caching())


def caching_by_workers() -> None:
    fit(data=Caching(workers=2))


def caching_draws() -> None:
    fit(data=CachingDraws())


CASES = [
    lists,
    rebound,
    tally,
    in_class,
    restored_list,
    only_read,
    truncated,
    appended,
    appended_between,
    appended_in_fit,
    logged,
    written_each_time,
    of_keras,
    workers,
    processes,
    workers_by_index,
    endless,
    with_callback,
    counted,
    counted_by_workers,
    caching,
    caching_by_workers,
    caching_draws,
]


def show_findings() -> None:
    """Print what is named of each case, and keep it from the verdict on the next."""
    state: Any = sys.modules["_reshape_hook.hook.script_state"].ScriptState
    exactness: Any = sys.modules["_reshape_hook.hook.exactness"]
    data: Any = sys.modules["_reshape_hook.hook.data_state"].DataState
    findings, before_training = state.findings, exactness.before_training
    late_reasons = data.late_reasons

    def shown_findings(self: Any, datasets: Any) -> Any:
        for reason, kind in findings(self, datasets):
            print(f"FOUND {case.__name__}|{kind}|{reason}", flush=True)
        return ()

    def shown_verdict(*arguments: Any) -> Any:
        verdict = before_training(*arguments)
        if verdict.kind != "exact":
            print(f"FOUND {case.__name__}|{verdict.kind}|{verdict.reason}", flush=True)
        return verdict

    def shown_reasons(self: Any) -> Any:
        for reason in late_reasons(self):
            print(f"FOUND {case.__name__}|steps-only|{reason}", flush=True)
        return ()

    state.findings, exactness.before_training = shown_findings, shown_verdict
    data.late_reasons = shown_reasons
    for case in CASES:
        case()


if NAME == "all":
    show_findings()
else:
    globals()[NAME]()
