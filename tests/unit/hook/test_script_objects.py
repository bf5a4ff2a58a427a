"""Objects of the script that callbacks change are named, however a callback reaches them."""

from __future__ import annotations

import functools
import io
import itertools
import types
from collections.abc import Callable
from typing import Any

import pytest

from reshape_sidecar.hook import variables
from reshape_sidecar.hook.script_objects import ScriptObjects


class Slotted:
    __slots__ = ("count", "unset")

    def __init__(self) -> None:
        self.count = 0


class Holding:
    """A callback that holds an object without an exact form, and changes it at each epoch."""

    def __init__(self, held: Any, change: Callable[[Any], Any]) -> None:
        self.held = held
        self._change = change

    def on_epoch_end(self) -> None:
        self._change(self.held)


class Calling:
    """A callback with a function of the script, as LambdaCallback has it."""

    def __init__(self, on_epoch_end: Callable[[], Any]) -> None:
        self.on_epoch_end = on_epoch_end


def count_up(slotted: Any) -> None:
    slotted.count += 1


def step(namespace: types.SimpleNamespace) -> None:
    namespace.step += 1


HELD: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "a counting iterator": (itertools.count, next),
    "an endless iterator": (lambda: itertools.cycle([0.1, 0.2]), next),
    "an iterator over a list": (lambda: iter([0.1, 0.2]), next),
    "a generator": (lambda: (rate / 2 for rate in (1, 2)), next),
    "an array of bytes": (bytearray, lambda held: held.append(1)),
    "a text in memory": (io.StringIO, lambda held: held.write("x")),
    "a namespace": (lambda: types.SimpleNamespace(step=0), step),
    "an object with slots": (Slotted, count_up),
}


@pytest.fixture(autouse=True)
def _no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variables, "handles", lambda model: set())


@pytest.mark.parametrize("kind", HELD)
def test_a_change_of_an_attribute_without_an_exact_form_is_named(kind: str) -> None:
    make, change = HELD[kind]
    callback = Holding(make(), change)
    objects = ScriptObjects([callback], None)
    assert objects.changed() == []
    callback.on_epoch_end()
    assert objects.changed() == ["Holding.held"]
    assert objects.changed() == []


def test_a_list_that_a_partial_passes_is_named() -> None:
    losses: list[float] = []
    callback = Calling(functools.partial(losses_append, losses))
    objects = ScriptObjects([callback], None)
    callback.on_epoch_end()
    assert objects.changed() == ["an argument of a partial"]


def losses_append(losses: list[float]) -> None:
    losses.append(0.5)


def test_of_two_lists_with_one_name_the_second_is_named_too() -> None:
    def notes(change: float) -> Callable[[], None]:
        held = [0.0]

        def note() -> None:
            held[0] += change

        return note

    callbacks = [Calling(notes(0.0)), Calling(notes(1.0))]
    objects = ScriptObjects(callbacks, None)
    for callback in callbacks:
        callback.on_epoch_end()
    assert objects.changed() == ["held (2)"]
