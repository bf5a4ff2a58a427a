"""What training changes of a script's objects comes back at the next start, or is named."""

from __future__ import annotations

import csv
import ctypes
import functools
import io
import itertools
import math
import multiprocessing
import os
import queue
import random
import sqlite3
import threading
import time
import weakref
from array import array
from collections import Counter, OrderedDict, UserDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reshape_sidecar.hook.exactness import UNKNOWN
from reshape_sidecar.verdict import origin
from reshape_sidecar.verdict.reach import Reach
from reshape_sidecar.verdict.watch import Watch

Pair = namedtuple("Pair", "step loss")


class Phase(Enum):
    WARM = 1
    COLD = 2


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this module be the script: names of other tests say nothing about its own."""
    monkeypatch.setattr(origin, "files_of_script", lambda: frozenset({__file__}))


@dataclass(frozen=True)
class Setting:
    rate: float
    phase: Phase


class Steps(int):
    """A number of the script's own class."""


class Script:
    """An object as a script has them, with attributes of its own."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def watch(script: object, **options: Any) -> Watch:
    return Watch(lambda reach: reach.root("Script", script), **options)


def names(found: Watch) -> list[str]:
    """The paths that are named, of whatever reason."""
    reasons = [reason for reason, _ in found.reasons("remedy")]
    return sorted(path for reason in reasons for path in reason.split(" ")[0].split(","))


def restarted(make: Callable[[], Script], train: Callable[[Script], None]) -> tuple[Script, Watch]:
    """The script of a second start after the first was stopped, and what watched the first."""
    first = make()
    found = watch(first)
    found.begin()
    train(first)
    found.look(deep=True)
    saved = found.capture()
    second = make()
    watch(second).restore(saved)
    return second, found


def draw(script: Script) -> None:
    script.value.random()


def fill_default(script: Script) -> None:
    script.value["train"]["loss"].append(0.5)


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Script], None]]] = {
    "a number": (lambda: 0, lambda script: setattr(script, "value", 7)),
    "a flag": (lambda: False, lambda script: setattr(script, "value", True)),
    "a text": (lambda: "a", lambda script: setattr(script, "value", "b")),
    "nothing that becomes a number": (lambda: None, lambda script: setattr(script, "value", 0.5)),
    "not a number": (lambda: 1.0, lambda script: setattr(script, "value", float("inf"))),
    "a list": (lambda: [1, 2], lambda script: script.value.append(3)),
    "a long list": (lambda: [0] * 5000, lambda script: script.value.append(3)),
    "nested lists": (lambda: [[1], [2, [3]]], lambda script: script.value[1][1].append(4)),
    "a set": (lambda: {1}, lambda script: script.value.add(2)),
    "a dictionary": (lambda: {"a": 1}, lambda script: script.value.update(b=2, a=0)),
    "a dictionary that shrinks": (lambda: {"a": 1, "b": 2}, lambda script: script.value.pop("a")),
    "an ordered dictionary": (OrderedDict, lambda script: script.value.update(b=2)),
    "a dictionary in an object": (UserDict, lambda script: script.value.update(b=2)),
    "counts": (Counter, lambda script: script.value.update("abca")),
    "lists made by a factory": (lambda: defaultdict(lambda: defaultdict(list)), fill_default),
    "a queue": (lambda: deque([1], maxlen=2), lambda script: script.value.extend([2, 3])),
    "a bytearray": (lambda: bytearray(b"ab"), lambda script: script.value.append(99)),
    "pairs with names": (lambda: [], lambda script: script.value.append(Pair(3, 0.5))),
    "a frozen value": (
        lambda: Setting(0.1, Phase.WARM),
        lambda script: setattr(script, "value", Setting(0.2, Phase.COLD)),
    ),
    "a decimal": (lambda: Decimal(0), lambda script: setattr(script, "value", Decimal(3))),
    "a range": (lambda: range(3), lambda script: setattr(script, "value", range(4))),
    "a path": (lambda: Path("a"), lambda script: setattr(script, "value", Path("b"))),
    "an array": (lambda: np.zeros(3), lambda script: script.value.__iadd__(1.5)),
    "an array of another shape": (
        lambda: np.zeros(3),
        lambda script: setattr(script, "value", np.ones((2, 2))),
    ),
    "one number of a large array": (
        lambda: np.zeros(100_000),
        lambda script: script.value.__setitem__(77_777, 1.0),
    ),
    "a list of arrays": (lambda: [np.zeros(2)], lambda script: script.value[0].__iadd__(1)),
    "a generator of Python": (lambda: random.Random(1), draw),
    "a generator of NumPy": (lambda: np.random.default_rng(1), draw),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_comes_back(kind: str) -> None:
    make, change = CHANGES[kind]
    trained = Script(value=make())
    change(trained)
    second, found = restarted(lambda: Script(value=make()), change)
    assert repr_of(second.value) == repr_of(trained.value)
    is_generator = kind.startswith("a generator")
    assert names(found) == (["Script.value"] if is_generator else []), "a draw is named"


def repr_of(value: Any) -> str:
    if isinstance(value, random.Random):
        return repr(value.getstate())
    if isinstance(value, defaultdict):
        return repr({key: dict(item) for key, item in value.items()})
    state = getattr(value, "bit_generator", None)
    return repr(value) if state is None else repr(state.state)


def test_a_collection_stays_shared() -> None:
    def make() -> Script:
        shared: list[int] = []
        return Script(here=shared, there=SimpleNamespace(notes=shared))

    second, _ = restarted(make, lambda script: script.here.append(1))
    assert second.here == [1]
    assert second.there.notes is second.here


def test_a_factory_goes_on_after_a_restart() -> None:
    second, _ = restarted(
        lambda: Script(value=defaultdict(lambda: defaultdict(list))), fill_default
    )
    second.value["evaluate"]["accuracy"].append(1.0)
    assert second.value["train"]["loss"] == [0.5]


def test_what_training_does_not_change_stays_that_of_the_start() -> None:
    """Paths, devices and the number of ranks are those of the new start."""
    starts = iter([Script(ranks=2, count=0), Script(ranks=1, count=0)])
    second, found = restarted(lambda: next(starts), lambda script: setattr(script, "count", 5))
    assert (second.ranks, second.count) == (1, 5)
    assert names(found) == []


def test_a_value_that_came_back_is_saved_again_without_a_change() -> None:
    second, found = restarted(lambda: Script(count=0), lambda script: setattr(script, "count", 5))
    third = Script(count=0)
    again = watch(second := Script(count=0))
    again.restore(found.capture())
    again.look(deep=True)
    watch(third).restore(again.capture())
    assert (second.count, third.count) == (5, 5)


def test_an_attribute_that_training_adds_comes_back() -> None:
    second, found = restarted(Script, lambda script: setattr(script, "best", 0.25))
    assert second.best == 0.25
    assert names(found) == []


class Saving:
    """An object that saves itself."""

    def __init__(self) -> None:
        self.hidden = iter(())
        self.steps = 0
        self.rate = 1.0

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]


def test_an_object_that_saves_itself_comes_back() -> None:
    second, found = restarted(
        lambda: Script(value=Saving()), lambda script: setattr(script.value, "steps", 3)
    )
    assert second.value.steps == 3
    assert names(found) == []


def numbers() -> Iterator[int]:
    yield from range(10)


class Steady:
    """A state of a script that goes over to another one."""


class Rising:
    """The other one."""


LEVELS = {1: 0.5}


@functools.lru_cache
def level_at(phase: int) -> float:
    return LEVELS[phase]


@functools.lru_cache
def halved(size: int) -> float:
    return math.floor(size) / 2


def keep_by_identity(script: Script) -> None:
    script.value[id(script)] = 0.5


LOST: dict[str, tuple[Callable[[], Any], Callable[[Script], Any]]] = {
    "an iterator over a list": (lambda: iter([1, 2]), lambda script: next(script.value)),
    "a generator function": (numbers, lambda script: next(script.value)),
    "an endless count": (itertools.count, lambda script: next(script.value)),
    "a new object of the script": (
        lambda: None,
        lambda script: setattr(script, "value", Saving()),
    ),
    "one more object in a list": (lambda: [Saving()], lambda script: script.value.append(Saving())),
    "numbers of Python's arrays": (
        lambda: array("d", [1.0]),
        lambda script: script.value.append(2),
    ),
    "bytes in memory": (io.BytesIO, lambda script: script.value.write(b"a")),
    "a queue between threads": (queue.Queue, lambda script: script.value.put(3)),
    "a number of several processes": (
        lambda: multiprocessing.Value("i", 0),
        lambda script: setattr(script.value, "value", 3),
    ),
    "a number of a class of the script": (
        lambda: Steps(0),
        lambda script: setattr(script, "value", Steps(3)),
    ),
    "records": (
        lambda: np.zeros(3, dtype=[("loss", "f4")]),
        lambda script: script.value["loss"].__setitem__(1, 0.5),
    ),
    "a view of bytes": (
        lambda: memoryview(bytearray(3)),
        lambda script: script.value.__setitem__(1, 5),
    ),
    "a number of C": (lambda: ctypes.c_long(0), lambda script: setattr(script.value, "value", 3)),
    "a dictionary by weak keys": (
        weakref.WeakKeyDictionary,
        lambda script: script.value.__setitem__(Saving, 3),
    ),
    "a polynomial": (
        lambda: np.poly1d([1.0, 2.0]),
        lambda script: setattr(script, "value", np.poly1d([1.0, 3.0])),
    ),
    "a method of an iterator": (lambda: itertools.count().__next__, lambda script: script.value()),
    "an iterator over others": (
        lambda: zip(itertools.count(), "abc", strict=False),
        lambda script: next(script.value),
    ),
    "rows of a file": (lambda: csv.reader(["a", "b"]), lambda script: next(script.value)),
    "a store in memory": (
        lambda: sqlite3.connect(":memory:"),
        lambda script: script.value.executescript("create table t(a); insert into t values (1)"),
    ),
    "a value of a context": (
        lambda: ContextVar("a", default=0),
        lambda script: script.value.set(3),
    ),
    "a dictionary by identity": (dict, keep_by_identity),
    "a cache of what changes": (lambda: level_at, lambda script: script.value(1)),
    "the class of an object": (
        lambda: Steady(),
        lambda script: setattr(script.value, "__class__", Rising),
    ),
    "an array of objects": (
        lambda: np.array([None, None], dtype=object),
        lambda script: script.value.__setitem__(1, 5),
    ),
    "a source of random bits": (
        lambda: np.random.PCG64(3),
        lambda script: script.value.random_raw(),
    ),
}


@pytest.mark.parametrize("kind", LOST)
def test_what_has_no_exact_form_is_named_once(kind: str) -> None:
    make, change = LOST[kind]
    script = Script(value=make())
    found = watch(script)
    found.begin()
    assert names(found) == []
    change(script)
    found.look()
    named = list(found.reasons("remedy"))
    assert [kind for _, kind in named] == [UNKNOWN], named
    assert named[0][0].startswith("Script.value")
    found.look()
    assert names(found) == []


def test_a_state_among_the_members_of_an_enumeration_comes_back() -> None:
    """The class of the members is reached first, and holds each of them too."""
    second, found = restarted(
        lambda: Script(phases=Phase, value=Phase.WARM),
        lambda script: setattr(script, "value", Phase.COLD),
    )
    assert second.value is Phase.COLD
    assert names(found) == []


def test_another_choice_among_values_comes_back_and_leaves_the_choices_alone() -> None:
    def make() -> Script:
        settings = [{"rate": 0.1}, {"rate": 0.2}]
        return Script(settings=[Script(value=one) for one in settings], now=settings[0])

    second, found = restarted(make, lambda script: setattr(script, "now", script.settings[1].value))
    assert second.now == {"rate": 0.2}
    assert [one.value for one in second.settings] == [{"rate": 0.1}, {"rate": 0.2}]
    assert names(found) == []


def test_another_choice_among_objects_of_the_script_is_named() -> None:
    settings = [{"rate": 0.1}, {"rate": 0.2}]
    script: Any = Script(settings=[Script(value=one) for one in settings])
    script.now = script.settings[0]
    found = watch(script)
    found.begin()
    assert names(found) == []
    script.now = script.settings[1]
    found.look()
    assert names(found) == ["Script.now"]


def test_a_method_that_is_replaced_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(self: Timed) -> None:
        self.steps += 2

    found = watch(Script(value=Timed()))
    found.begin()
    monkeypatch.setattr(Timed, "step", other)
    found.look()
    assert "Timed (methods)" in ",".join(reason for reason, _ in found.reasons("remedy"))


class Ramp:
    """Data that keep their samples, made at the level of that time."""

    def __init__(self) -> None:
        self.level, self.cache = 1.0, dict[int, float]()


@pytest.mark.parametrize("level", [1.0, 2.0])
def test_a_cache_of_samples_is_state_if_the_data_change(level: float) -> None:
    script = Script(data=Ramp())
    found = Watch(lambda walk: walk.data("data", script, "data", is_ahead=False))
    found.begin()
    script.data.cache[0], script.data.level = 0.5, level
    found.look()
    assert names(found) == ([] if level == 1 else ["data.cache"])


def test_a_cache_of_a_function_of_its_arguments_is_no_state() -> None:
    found = watch(Script(value=halved))
    found.begin()
    halved(8)
    found.look()
    assert names(found) == []


def test_the_place_in_a_file_that_is_read_is_named() -> None:
    with Path(__file__).open() as lines:
        found = watch(Script(value=lines))
        found.begin()
        lines.readline()
        found.look()
    assert names(found) == ["Script.value"]


def test_the_generators_of_the_process_are_no_state_of_the_script() -> None:
    script = Script(draw=random.random, numbers=np.random.rand)
    found = watch(script)
    found.begin()
    script.draw()
    script.numbers()
    found.look()
    assert names(found) == []


def test_a_log_that_is_written_is_no_state(tmp_path: Path) -> None:
    with open(tmp_path / "log", "a") as log:
        found = watch(Script(value=log))
        found.begin()
        log.write("step 1")
        log.flush()
        found.look()
    assert names(found) == []


def test_what_the_state_of_an_object_leaves_out_comes_back() -> None:
    def train(script: Script) -> None:
        script.value.steps, script.value.rate = 3, 0.5

    second, found = restarted(lambda: Script(value=Saving()), train)
    assert (second.value.steps, second.value.rate) == (3, 0.5)
    assert names(found) == []


def test_a_variable_of_the_environment_that_the_script_sets_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(origin, "words_of_script", lambda _: {"MARGIN", "\ud800"})
    monkeypatch.setenv("MARGIN", "0.5")
    monkeypatch.setenv("OTHER", "1")
    found = Watch(lambda walk: walk.script())
    found.begin()
    os.environ.update(MARGIN="0.25", OTHER="2")
    found.look()
    saved = found.capture()
    os.environ.update(MARGIN="0.5", OTHER="1")
    Watch(lambda walk: walk.script()).restore(saved)
    assert (os.environ["MARGIN"], os.environ["OTHER"]) == ("0.25", "1")


class Begun:
    """A script with a callback that reads a value off its model as training begins."""

    def __init__(self, rate: float = 0.8) -> None:
        self.rate = rate
        self.base: Any = None

    def begins(self) -> None:
        self.base = [self.rate]


def test_what_a_callback_makes_as_training_begins_is_that_of_the_first_start() -> None:
    first, second = Begun(), Begun(rate=0.1)
    found, again = watch(first), watch(second)
    for one, script in ((found, first), (again, second)):
        one.arrive()
        script.begins()
    found.begin()
    found.look(deep=True)
    again.restore(found.capture())
    assert second.base == [0.8]
    assert names(again) == ["Script.rate"], "the start's own is named"


def test_a_measure_that_another_start_begins_with_otherwise_is_named_in_each_later_one() -> None:
    starts = [Script(rate=0.2, ranks=2), Script(rate=0.1, ranks=1), Script(rate=0.1, ranks=1)]
    saved: list[Any] = []
    named = []
    for script in starts:
        found = watch(script)
        found.restore(saved)
        found.look(deep=True)
        named.append(names(found))
        saved = found.capture()
    assert named == [[], ["Script.rate"], ["Script.rate"]]


class Refusing(Saving):
    def state_dict(self) -> dict[str, Any]:
        raise RuntimeError("not now")


def test_an_object_that_refuses_to_be_read_is_named() -> None:
    found = watch(Script(value=Refusing()))
    found.begin()
    found.look(deep=True)
    assert names(found) == ["Script.value"]
    assert [entry["path"] for entry in found.capture()] == [""], "only how training began"
    assert found.capture_own() == []


def closure() -> Callable[[], int]:
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return count

    return step


def test_what_a_function_encloses_comes_back() -> None:
    second, _ = restarted(lambda: Script(step=closure()), lambda script: script.step())
    assert second.step() == 2


class Counted:
    """A class of the script that counts in itself."""

    seen = 0


def test_a_value_in_a_class_comes_back() -> None:
    Counted.seen = 0
    found = watch(Script(one=Counted()))
    found.begin()
    Counted.seen = 4
    found.look(deep=True)
    saved = found.capture()
    Counted.seen = 0
    watch(Script(one=Counted())).restore(saved)
    assert Counted.seen == 4


class Timed:
    """An object that keeps what a clock says."""

    def __init__(self) -> None:
        self.of_this_moment = 0.0
        self.steps = 0

    def step(self) -> None:
        self.of_this_moment = time.perf_counter()
        self.steps += 1


def test_what_a_clock_said_does_not_come_back() -> None:
    first, second = Timed(), Timed()
    found = watch(first)
    found.begin()
    first.step()
    found.look(deep=True)
    watch(second).restore(found.capture())
    assert vars(second) == {"of_this_moment": 0.0, "steps": 1}


class Annealed:
    """A descriptor of the script that keeps its value."""

    value = 1.0

    def __get__(self, owner: object, kind: type) -> float:
        self.value *= 0.5
        return self.value


class Loss:
    """A class with a descriptor."""

    weight = Annealed()


def test_what_a_descriptor_keeps_comes_back() -> None:
    one = Loss()
    found = watch(Script(one=one))
    found.begin()
    assert one.weight == 0.5
    found.look(deep=True)
    saved = found.capture()
    vars(vars(Loss)["weight"]).clear()
    watch(Script(one=Loss())).restore(saved)
    assert Loss().weight == 0.25
    vars(vars(Loss)["weight"]).clear()


class Writing:
    """A callback with a thread, and a flag that says that it runs."""

    def __init__(self) -> None:
        self.thread: threading.Thread | None = None
        self.stopped = threading.Event()
        self.runs = False
        self.count = 0

    def start(self) -> None:
        self.thread = threading.Thread(target=self.stopped.wait, daemon=True)
        self.thread.start()
        self.runs = True
        self.count += 2


def test_a_flag_about_a_thread_of_the_process_before_stays_out() -> None:
    first, second = Writing(), Writing()
    found = watch(first)
    found.begin()
    first.start()
    try:
        found.look(deep=True)
        watch(second).restore(found.capture())
    finally:
        first.stopped.set()
    assert (second.runs, second.count) == (False, 2)


def two_ranks(values: tuple[Any, Any], **options: Any) -> Watch:
    watches = []
    for value in values:
        script: Any = Script(value=0)
        found = watch(script, **options)
        found.begin()
        script.value = value
        found.look()
        watches.append(found)
    watches[0].compare([one.digests() for one in watches])
    return watches[0]


@pytest.mark.parametrize(("keeps_ranks", "kind"), [(True, "steps-only"), (False, "unknown")])
def test_what_differs_between_the_ranks_is_named(keeps_ranks: bool, kind: str) -> None:
    ((reason, verdict),) = two_ranks((0.5, 0.6), keeps_ranks=keeps_ranks).reasons("")
    assert reason.startswith("Script.value differs between the GPUs")
    assert verdict.value == kind


@pytest.mark.parametrize("values", [(0.5, 0.5), (0.5, 0)])
def test_what_is_the_same_or_is_noted_by_one_rank_alone_is_not_named(values: Any) -> None:
    assert names(two_ranks(values)) == []


def test_each_rank_gets_its_own_value_where_it_differs() -> None:
    found = two_ranks((0.5, 0.6))
    (entry,) = found.capture_own()
    assert (entry["path"], entry["value"]) == ("Script.value", 0.5)


def test_what_changes_within_a_part_of_a_step_is_named() -> None:
    script: Any = Script(seen=0, rows=[])
    found = watch(script)
    found.begin()
    for _ in range(2):
        before = found.marks()
        script.seen += 1
        found.changed_inside(before)
        script.rows.append(1)
    ((reason, verdict),) = found.reasons("")
    assert reason.startswith("Script.seen changes with each micro-batch")
    assert verdict.value == "steps-only"


def test_an_object_that_cannot_be_looked_at_is_unknown_and_ends_nothing() -> None:
    def enter(reach: Reach) -> None:
        raise RuntimeError("no")

    found = Watch(enter)
    found.begin()
    found.look()
    ((reason, verdict),) = found.reasons("")
    assert "what a look could not read (RuntimeError: no)" in reason
    assert verdict.value == "unknown"


def test_a_saved_value_without_its_owner_is_named(tmp_path: Path) -> None:
    script = Script(inner=Script(count=0))
    found = watch(script)
    found.begin()
    script.inner.count = 3
    found.look(deep=True)
    again = watch(Script(inner=None))
    again.restore(found.capture())
    assert names(again) == ["Script.inner.count"]
