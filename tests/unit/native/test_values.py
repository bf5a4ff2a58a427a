"""A translated dataclass does what the original does: seen on small classes, feature by feature."""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import pickle
from typing import Any, get_type_hints

import pytest

from native import copies
from native.module import translate
from tests.unit.native.samples import HEAD, both

POINT = """
@dataclass(frozen=True, slots=True)
class Point:
    '''A place.'''

    x: int
    # why y is here
    y: float = 0.5
    '''Of y.'''
    name: str = field(default="p", repr=False)
    seen: int = field(default=0, compare=False)
    tags: list[str] = field(default_factory=list, compare=False)
    sums: list[int] = field(default_factory=lambda: [0] * 3, compare=False)
    kept: object = field(default=None, init=False, compare=False, repr=False)

    def far(self) -> float:
        return self.x + self.y
"""
FIELD = ("name", "type", "default", "init", "repr", "compare", "hash")


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    original, translated = both(POINT, monkeypatch)
    return original.Point, translated.Point


def test_it_has_the_same_fields(points: tuple[Any, Any]) -> None:
    told = [
        [[getattr(entry, name) for name in FIELD] for entry in dataclasses.fields(kind)]
        for kind in points
    ]
    assert told[0] == told[1]
    assert len(told[0]) == 7
    assert get_type_hints(points[0]) == get_type_hints(points[1])
    assert [kind.__dataclass_params__.frozen for kind in points] == [True, True]


def test_it_is_made_of_the_same_arguments(points: tuple[Any, Any]) -> None:
    original, translated = points
    assert str(inspect.signature(original)) == str(inspect.signature(translated))
    assert original.__match_args__ == translated.__match_args__
    assert dataclasses.asdict(original(1, tags=["a"])) == dataclasses.asdict(
        translated(1, tags=["a"])
    )


def test_what_a_factory_makes_is_made_anew_each_time(points: tuple[Any, Any]) -> None:
    for kind in points:
        one, two = kind(1), kind(1)
        one.tags.append("a")
        one.sums.append(1)
        assert (two.tags, two.sums) == ([], [0, 0, 0])


def test_it_is_told_in_the_same_words(points: tuple[Any, Any]) -> None:
    original, translated = points
    assert repr(original(1, 2.0, "q", 3)) == repr(translated(1, 2.0, "q", 3))


@pytest.mark.parametrize("other", [(1,), (2,), (1, 0.75), (1, 0.5, "q"), (1, 0.5, "p", 9)])
def test_it_is_equal_to_the_same_others(points: tuple[Any, Any], other: tuple[Any, ...]) -> None:
    original, translated = points
    assert (original(1) == original(*other)) == (translated(1) == translated(*other))
    assert hash(original(*other)) == hash(translated(*other))


def test_it_is_equal_to_no_other_class_of_the_same_fields(points: tuple[Any, Any]) -> None:
    original, translated = points
    assert translated(1) != original(1)
    assert translated(1).__eq__(1) is NotImplemented


def test_a_changed_copy_is_that_of_the_standard_library(points: tuple[Any, Any]) -> None:
    for kind in points:
        value = kind(1, 2.0, tags=["a"])
        assert dataclasses.replace(value, x=3) == kind(3, 2.0)
    assert translated_copy(points, x=3, tags=["b"]).tags == ["b"]
    with pytest.raises(TypeError, match="Point has not all of the fields z"):
        translated_copy(points, z=1)
    with pytest.raises(TypeError, match="kept"):
        translated_copy(points, kept=1)


def translated_copy(points: tuple[Any, Any], **changes: object) -> Any:
    return points[1](1, 2.0).__replace__(**changes)


def test_a_changed_copy_leaves_the_value_as_it_was(points: tuple[Any, Any]) -> None:
    value = points[1](1)
    assert value.__replace__(x=2).x == 2
    assert value.x == 1


def test_it_survives_pickling_and_copying(points: tuple[Any, Any]) -> None:
    value = points[1](1, 2.0, tags=["a"])
    for again in (pickle.loads(pickle.dumps(value)), copy.deepcopy(value), copy.copy(value)):
        assert (again, again.tags) == (value, ["a"])


def test_it_matches_by_position(points: tuple[Any, Any]) -> None:
    for kind in points:
        match kind(1, 2.0):
            case kind(1, y):
                assert y == 2.0
            case _:
                pytest.fail("it did not match")


def test_all_else_of_the_text_stays_as_it_is() -> None:
    translated = translate(HEAD + POINT, "sample/point.py")
    kept = [line for line in POINT.splitlines() if line and "=" not in line]
    assert len(kept) == 7
    assert [line for line in kept if line not in translated.splitlines()] == []


def test_what_can_be_changed_has_no_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in both("@dataclass(slots=True)\nclass Open:\n    x: int = 0\n", monkeypatch):
        value = module.Open()
        value.x = 3
        assert value == module.Open(3)
        with pytest.raises(TypeError):
            hash(value)


def test_without_eq_each_value_is_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "@dataclass(slots=True, eq=False)\nclass Own:\n    x: int = 0\n"
    for module in both(text, monkeypatch):
        value = module.Own()
        assert value != module.Own()
        assert {value: 1}[value] == 1


def test_what_a_class_has_of_its_own_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
@dataclass(frozen=True)
class Own:
    x: int

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 7

    def __repr__(self) -> str:
        return "own"
"""
    for module in both(text, monkeypatch):
        assert module.Own(1) == module.Own(2)
        assert (hash(module.Own(1)), repr(module.Own(1))) == (7, "own")


def test_a_value_is_checked_when_it_is_made_and_when_it_is_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = """
@dataclass(frozen=True, slots=True)
class Positive:
    x: int
    y: int = 1

    def __post_init__(self) -> None:
        if self.x < 1:
            raise ValueError("x is too small")
"""
    for module in both(text, monkeypatch):
        with pytest.raises(ValueError, match="x is too small"):
            module.Positive(0)
        with pytest.raises(ValueError, match="x is too small"):
            dataclasses.replace(module.Positive(1), x=0)
        assert dataclasses.replace(module.Positive(1), y=5) == module.Positive(1, 5)
    with pytest.raises(ValueError, match="x is too small"):
        module.Positive(1).__replace__(x=0)
    with pytest.raises(TypeError):
        module.Positive(1).__replace__(z=0)


def test_a_field_that_no_constructor_takes_may_be_set_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = """
@dataclass
class Doubled:
    x: int
    twice: int = field(init=False)
    none: list[int] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.twice = 2 * self.x
"""
    for module in both(text, monkeypatch):
        assert repr(module.Doubled(3)) == "Doubled(x=3, twice=6, none=[])"
        assert module.Doubled(1).none is not module.Doubled(1).none


def test_a_value_may_have_one_field_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
@dataclass(frozen=True)
class None_:
    '''Nothing.'''


@dataclass(frozen=True)
class One:
    x: (
        int
        | None
    ) = (
        None  # so far
    )
"""
    for module in both(text, monkeypatch):
        assert module.None_() == module.None_()
        assert hash(module.None_()) == hash(())
        assert (module.One(3), repr(module.One())) == (module.One(3), "One(x=None)")
        assert hash(module.One(3)) == hash((3,))
        assert module.One.__match_args__ == ("x",)
        assert get_type_hints(module.One) == {"x": int | None}


def test_a_call_of_replace_becomes_the_values_own(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
@dataclass(frozen=True)
class Pair:
    x: int
    y: Pair | None = None

    def next(self) -> Pair:
        return replace(
            self if self.x else self,
            x=self.x + 1,  # one more, and
            y=replace(self, x=0),
        )


def named(pair: Pair) -> tuple[str, Pair]:
    return "größer", replace(pair, x=len("ä"), y=replace(pair, x=2))


def text_of(text: str) -> str:
    return text.replace("a", "b")
"""
    original, translated = both(text, monkeypatch)
    assert repr(original.Pair(1).next()) == repr(translated.Pair(1).next())
    assert repr(original.named(original.Pair(5))) == repr(translated.named(translated.Pair(5)))
    assert translated.text_of("a") == "b"
    shown = translate(HEAD + text, "sample/pair.py")
    assert "        return (\n            self if self.x else self)._with_x__y(\n" in shown
    assert "(self)._with_x( x=0)" in shown


def test_a_class_has_a_method_for_what_other_modules_replace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = """
@dataclass(frozen=True, slots=True)
class Pair:
    x: int
    y: int = 0
    kept: object = field(default=None, init=False, compare=False)


def with_fields(pair: Pair, **fields: int) -> Pair:
    return replace(pair, **fields)
"""
    asked = copies.asked(ast.parse(HEAD + "def f(a, b):\n    return replace(a, y=1, x=b)\n"))
    assert asked == {("x", "y")}
    shown = translate(HEAD + text, "sample/pair.py", {*asked, ("y",), ("y", "z"), ("kept",)})
    defined = [line.strip() for line in shown.splitlines() if "def _with_" in line]
    assert defined == [
        "def _with_x__y(self, *, x: int, y: int) -> Pair:",
        "def _with_y(self, *, y: int) -> Pair:",
    ]
    original, translated = both(text, monkeypatch)
    for module in (original, translated):
        assert repr(module.with_fields(module.Pair(1), y=2)) == "Pair(x=1, y=2, kept=None)"
        with pytest.raises(TypeError):
            module.with_fields(module.Pair(1), z=2)
