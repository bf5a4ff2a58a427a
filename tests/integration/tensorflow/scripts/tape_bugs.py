"""Bugs that ``tape.py --bug NAME`` plants in its loop, for the test that finds each of them."""

import dataclasses
from typing import Any

from reshape_sidecar.hook import placement, randomness, variables
from reshape_sidecar.tensorflow import data, loop

Pipeline: Any = data.Pipeline
Loop: Any = loop.Loop


def place_with(batches: int = 0, iterators: int = 0) -> None:
    """Go to another position than the checkpoint's."""
    original = Pipeline.place

    def place(self: Any, saved: Any, done: int) -> None:
        changed = dataclasses.replace(saved, iterators=saved.iterators + iterators)
        original(self, changed, done + batches)

    Pipeline.place = place


def batch_skipped() -> None:
    place_with(batches=1)


def batch_repeated() -> None:
    place_with(batches=-1)


def shuffle_of_epoch_0_again() -> None:
    placement.advance = lambda dataset, made, begun: None


def slot_not_restored() -> None:
    original = variables._assign

    def assign(variable: Any, how: str, values: list[Any]) -> None:
        if "momentum" not in str(getattr(variable, "path", variable.name)):
            original(variable, how, values)

    variables._assign = assign


def random_state_not_restored() -> None:
    randomness.restore = lambda saved: None


def step_not_counted() -> None:
    original = Loop._step_done

    def step_done(self: Any) -> None:
        original(self)
        self._session.step -= self._position.batch == 7

    Loop._step_done = step_done


def plant(name: str) -> None:
    """Plant the bug of this name."""
    globals()[name]()
