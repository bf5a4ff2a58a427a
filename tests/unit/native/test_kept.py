"""Cached properties, and classes that are made with options."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import pytest

from tests.unit.native.samples import both

COUNTING = """
class Counting:
    def __init__(self) -> None:
        self.count = 0

    @cached_property
    def most(self) -> list[int]:
        '''Made once.'''
        self.count += 1
        return [self.count]
"""
OPTIONS = """
LEAST = 0.5


class Chosen:
    def __init__(self, gain: float | str = LEAST, size: int = 3, *, name: str = "n") -> None:
        if size < 0:
            raise ValueError("size is negative")
        self._gain, self.size = float(gain), size
        self.name: str = name


class Needy:
    def __init__(self, size: int, name: str = "n") -> None:
        self.size = size
"""


def test_a_cached_property_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in both(COUNTING, monkeypatch):
        one, two = module.Counting(), module.Counting()
        assert one.most is one.most
        assert (one.count, one.most, two.count) == (1, [1], 0)


def test_a_value_keeps_what_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
@dataclass(frozen=True)
class Sums:
    parts: tuple[int, ...]

    @cached_property
    def total(self) -> list[int]:
        return [sum(self.parts)]
"""
    for module in both(text, monkeypatch):
        value = module.Sums((1, 2))
        assert value.total is value.total
        assert (value.total, value) == ([3], module.Sums((1, 2)))
        assert repr(value) == "Sums(parts=(1, 2))"


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    original, translated = both(OPTIONS, monkeypatch)
    return original.Chosen, translated.Chosen


def test_a_class_with_options_tells_them(chosen: tuple[Any, Any]) -> None:
    told = [
        [
            (entry.name, entry.kind, entry.default)
            for entry in inspect.signature(kind).parameters.values()
        ]
        for kind in chosen
    ]
    assert told[0] == told[1]
    for kind in chosen:
        with pytest.raises(TypeError, match="got an unexpected keyword argument 'other'"):
            inspect.signature(kind).bind(other=1)


def test_a_class_with_options_survives_pickling(chosen: tuple[Any, Any]) -> None:
    for kind in chosen:
        again = pickle.loads(pickle.dumps(kind("0.25", 7, name="m")))
        assert (again._gain, again.size, again.name) == (0.25, 7, "m")


def test_a_class_that_needs_an_argument_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    _, translated = both(OPTIONS, monkeypatch)
    assert "__reduce__" not in vars(translated.Needy)
    assert "__signature__" not in vars(translated.Needy)
