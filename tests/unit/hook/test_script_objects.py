"""Objects of the script that callbacks change are named, however a callback reaches them."""

from __future__ import annotations

import functools
import io
import itertools
import os
import threading
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


best = 1.0


def improve() -> None:
    global best
    best /= 2


class Counted:
    """A callback that counts in its class."""

    count = 0
    name = "", 0

    def on_epoch_end(self) -> None:
        Counted.count += 1
        Counted.name = "step", Counted.count


def counting() -> Callable[[], int]:
    count = 0

    def count_up() -> int:
        nonlocal count
        count += 1
        return count

    return count_up


def test_numbers_and_texts_that_callbacks_bind_to_names_are_restored() -> None:
    global best
    count_up = counting()
    callbacks: list[Any] = [Calling(improve), Calling(count_up), Counted()]
    objects = ScriptObjects(callbacks, None)
    assert objects.capture()["bound"] == {}
    for callback in callbacks:
        callback.on_epoch_end()
    saved = objects.capture()
    assert objects.changed() == []
    best, Counted.count, Counted.name = 1.0, 0, ("", 0)
    count_up_again = counting()
    ScriptObjects([Calling(improve), Calling(count_up_again), Counted()], None).restore(saved)
    assert (best, Counted.count, Counted.name) == (0.5, 1, ("step", 1))
    assert count_up_again() == 2
    best, Counted.count, Counted.name = 1.0, 0, ("", 0)


class Working:
    """A callback whose class knows whether its thread runs."""

    begun = False
    phase = "idle"
    begins = 0

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def on_epoch_end(self) -> None:
        if not Working.begun:
            self.lock.acquire()
            Working.begun = True
            Working.phase = "working"
        Working.begins += 1


def test_a_flag_about_what_died_with_the_process_is_not_restored() -> None:
    callback = Working()
    objects = ScriptObjects([callback], None)
    callback.on_epoch_end()
    saved = objects.capture()
    Working.begun, Working.phase, Working.begins = False, "idle", 0
    ScriptObjects([Working()], None).restore(saved)
    assert (Working.begun, Working.phase, Working.begins) == (False, "idle", 1)
    again = Working()
    again.lock.acquire()
    ScriptObjects([again], None).restore(saved)
    assert Working.begun, "the lock is taken again, so the flag is right"
    assert Working.phase == "working"
    Working.begun, Working.phase, Working.begins = False, "idle", 0


class Writing:
    """A callback whose class holds a descriptor and the id of its process, and counts."""

    descriptor = -1
    process = -1
    lines = 0

    def on_epoch_end(self) -> None:
        Writing.descriptor = os.open(os.devnull, os.O_WRONLY)
        Writing.process = os.getpid()
        Writing.lines += 1


def test_a_number_of_the_process_is_not_restored() -> None:
    objects = ScriptObjects([Writing()], None)
    Writing().on_epoch_end()
    os.close(Writing.descriptor)
    assert list(objects.capture()["bound"]) == ["Writing.lines"]
    assert objects.changed() == []
    Writing.descriptor, Writing.process, Writing.lines = -1, -1, 0
