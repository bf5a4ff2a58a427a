"""What a state keeps, it gives back exactly; what it cannot keep, it refuses by name."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reshape_sidecar.hook import callback_state
from reshape_sidecar.hook.values import Reader, Unkeepable, Writer

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
KEYS = st.text() | st.integers() | st.tuples(st.integers(), st.text())
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.frozensets(st.integers(), max_size=3)
    ),
    max_leaves=12,
)


def there_and_back(value: Any, folder: Path) -> Any:
    writer = Writer()
    writer.write(folder, {"value": writer.encode(value)})
    reader = Reader(folder)
    return reader.decode(reader.document["value"])


def equal(one: Any, other: Any) -> bool:
    """Equal with equal types; NaN equals NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    return bool(one == other)


@given(VALUES)
def test_plain_values_come_back_with_their_types(
    tmp_path_factory: pytest.TempPathFactory, value: Any
) -> None:
    assert equal(there_and_back(value, tmp_path_factory.mktemp("state")), value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype="float32").reshape(3, 4),
        np.array(7, "int64"),
        np.zeros((0, 5), "uint8"),
        np.array([True, False]),
        np.array([1 + 2j]),
        np.arange(12).reshape(3, 4).T,
        np.array([np.nan, np.inf, -0.0]),
    ],
)
def test_arrays_come_back_bit_by_bit(tmp_path: Path, array: Any) -> None:
    back = there_and_back({"a": [array]}, tmp_path)["a"][0]
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()
    assert back.flags.writeable


def test_numpy_scalars_and_functions_come_back(tmp_path: Path) -> None:
    back = there_and_back([np.float32(0.1), np.less, np.int64(3)], tmp_path)
    assert (type(back[0]), back[0]) == (np.float32, np.float32(0.1))
    assert back[1] is np.less
    assert type(back[2]) is np.int64


@pytest.mark.parametrize(
    "value",
    [lambda: 1, threading.Lock(), object(), open, np.array([object()]), Path("x"), [object()]],
)
def test_what_has_no_exact_form_is_refused(value: Any) -> None:
    with pytest.raises(Unkeepable):
        Writer().encode(value)


def test_a_state_of_another_version_is_refused_with_the_remedy(tmp_path: Path) -> None:
    Writer().write(tmp_path, {})
    path = tmp_path / "state.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 99'))
    with pytest.raises(ValueError, match="another version of the hook"):
        Reader(tmp_path)


class Callback:
    """A callback of a user."""

    def __init__(self) -> None:
        self.model = object()
        self.wait = 0
        self.best: Any = None
        self.lock = threading.Lock()


class CSVLogger(Callback):
    """Named like the one of Keras."""

    append = False


def test_the_state_of_callbacks_comes_back_and_what_is_lost_is_named(tmp_path: Path) -> None:
    before = [Callback(), CSVLogger()]
    before[0].wait, before[0].best = 3, np.float32(0.5)
    writer = Writer()
    saved = callback_state.capture(before, writer)
    assert saved[0]["lost"] == ["lock"]
    writer.write(tmp_path, {"callbacks": saved})
    after = [Callback(), CSVLogger()]
    model, lock = after[0].model, after[0].lock
    reader = Reader(tmp_path)
    assert callback_state.restore(after, reader.document["callbacks"], reader) == []
    assert (after[0].wait, after[0].best) == (3, np.float32(0.5))
    assert (after[0].model, after[0].lock) == (model, lock)


def test_callbacks_that_do_not_match_are_left_alone_and_named(tmp_path: Path) -> None:
    writer = Writer()
    writer.write(tmp_path, {"callbacks": callback_state.capture([Callback()], writer)})
    reader = Reader(tmp_path)
    others = [CSVLogger(), Callback()]
    unmatched = callback_state.restore(others, reader.document["callbacks"], reader)
    assert [name.rsplit(".", 1)[1] for name in unmatched] == ["CSVLogger", "Callback"]


def test_a_logger_goes_on_in_its_file() -> None:
    callbacks = [Callback(), CSVLogger()]
    callback_state.append_instead_of_truncating(callbacks)
    assert callbacks[1].append is True  # type: ignore[attr-defined]
    assert not hasattr(callbacks[0], "append")
