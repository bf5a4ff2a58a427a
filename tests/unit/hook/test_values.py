"""A state restores every value exactly, and refuses by name the values that it cannot hold."""

from __future__ import annotations

import errno
import math
import mmap
import threading
import types
from collections import Counter, OrderedDict, defaultdict, deque
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


def test_arrays_are_read_from_a_map_when_their_file_is_gone(tmp_path: Path) -> None:
    writer = Writer()
    writer.write(tmp_path, {"value": writer.encode(np.arange(5))})
    reader = Reader(tmp_path)
    reader.load()
    for file in tmp_path.iterdir():
        file.unlink()
    back = reader.decode(reader.document["value"])
    reader.release()
    back += 1
    assert back.tolist() == [1, 2, 3, 4, 5]


def test_arrays_are_read_where_a_file_system_has_no_maps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.ENODEV, "no maps here")

    monkeypatch.setattr(mmap, "mmap", refused)
    assert there_and_back({"a": np.arange(5)}, tmp_path)["a"].tolist() == [0, 1, 2, 3, 4]


def test_numpy_scalars_and_functions_come_back(tmp_path: Path) -> None:
    back = there_and_back([np.float32(0.1), np.less, np.int64(3)], tmp_path)
    assert (type(back[0]), back[0]) == (np.float32, np.float32(0.1))
    assert back[1] is np.less
    assert type(back[2]) is np.int64


@pytest.mark.parametrize(
    "value",
    [
        OrderedDict(b=1, a=[2]),
        Counter("aab"),
        defaultdict(list, {3: [1.5]}),
        defaultdict(None, a=1),
        deque([1, 2], maxlen=3),
        deque("ab"),
    ],
)
def test_collections_come_back_with_what_they_do_to_new_keys_and_items(
    tmp_path: Path, value: Any
) -> None:
    back = there_and_back(value, tmp_path)
    assert (type(back), back) == (type(value), value)
    assert list(back) == list(value)
    for name in ("maxlen", "default_factory"):
        assert getattr(back, name, None) == getattr(value, name, None)


@pytest.mark.parametrize(
    "value",
    [
        defaultdict(lambda: 1),
        lambda: 1,
        threading.Lock(),
        object(),
        open,
        np.array([object()]),
        Path("x"),
        [object()],
    ],
)
def test_what_has_no_exact_form_is_refused(value: Any) -> None:
    with pytest.raises(Unkeepable):
        Writer().encode(value)


def test_a_state_of_another_version_is_refused_with_the_remedy(tmp_path: Path) -> None:
    Writer().write(tmp_path, {})
    path = tmp_path / "state.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 99'))
    with pytest.raises(ValueError, match="this version of Reshape reads format"):
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


def test_the_state_of_callbacks_comes_back_and_what_is_lost_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = [Callback(), CSVLogger()]
    before[0].wait, before[0].best = 3, np.float32(0.5)
    writer = Writer()
    saved = callback_state.capture(before, writer)
    assert saved[0]["lost"] == ["lock"]
    writer.write(tmp_path, {"callbacks": saved})
    after = [Callback(), CSVLogger()]
    model, lock = after[0].model, after[0].lock
    reader = Reader(tmp_path)
    callback_state.restore(after, reader.document["callbacks"], reader)
    assert capsys.readouterr().err == "".join(
        f"reshape: attributes of {__name__}.{name} that were not restored: lock\n"
        for name in ("Callback", "CSVLogger")
    )
    assert (after[0].wait, after[0].best) == (3, np.float32(0.5))
    assert (after[0].model, after[0].lock) == (model, lock)


def test_callbacks_that_do_not_match_are_left_alone_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = Writer()
    writer.write(tmp_path, {"callbacks": callback_state.capture([Callback()], writer)})
    reader = Reader(tmp_path)
    others = [CSVLogger(), Callback()]
    callback_state.restore(others, reader.document["callbacks"], reader)
    names = ", ".join(f"{__name__}.{name}" for name in ("CSVLogger", "Callback"))
    said = capsys.readouterr().err
    assert said == f"reshape: callbacks whose state was not found: {names}\n"


class Noting(Callback):
    """Notes into what it was given."""

    def __init__(self, *notes: Any) -> None:
        super().__init__()
        self.list, self.dict, self.set, self.deque = notes


def test_a_list_that_the_script_holds_as_well_is_filled_and_not_replaced(tmp_path: Path) -> None:
    writer = Writer()
    before = Noting([1], {"a": 2}, {3}, deque([4], 2))
    writer.write(tmp_path, {"callbacks": callback_state.capture([before], writer)})
    reader = Reader(tmp_path)
    of_script: list[Any] = [[], {"b": 0}, set(), deque([9], 2)]
    callback_state.restore([Noting(*of_script)], reader.document["callbacks"], reader)
    assert of_script == [[1], {"a": 2}, {3}, deque([4], 2)]


def test_callbacks_of_finished_calls_come_back_in_their_newest_state(tmp_path: Path) -> None:
    twice, once, writer = Callback(), Callback(), Writer()
    ended = callback_state.EndedCallbacks()
    ended.fit_ended([Callback(), twice])  # nobody can read the first one any more
    twice.wait = 1
    ended.fit_ended(twice)
    twice.wait, once.best = 2, "best"
    ended.fit_ended(types.SimpleNamespace(callbacks=[once]))
    ended.fit_ended(None)
    document = ended.encode(writer)
    assert document["fits"] == [[None, 0], [0], [1], []]
    writer.write(tmp_path, {"ended": document})
    reader, model = Reader(tmp_path), object()
    again = [[Callback(), Callback()], [Callback()], [Callback()], []]
    for number, callbacks in enumerate(again):
        saved = reader.document["ended"]
        callback_state.restore_ended(callbacks, saved, number, model, reader)
    assert [[one.wait for one in callbacks] for callbacks in again] == [[0, 2], [2], [0], []]
    assert again[2][0].best == "best"
    assert vars(again[0][1])["_model"] is model
    callback_state.restore_ended(again[0], {}, 0, model, reader)  # of an older hook


def test_a_logger_goes_on_in_its_file() -> None:
    callback, logger = Callback(), CSVLogger()
    callback_state.append_instead_of_truncating([callback, logger])
    assert logger.append is True
    assert not hasattr(callback, "append")


class OwnLogger(CSVLogger):
    """One that a script derives from Keras's."""

    append_header = True


def test_a_logger_that_goes_on_writes_no_second_header(tmp_path: Path) -> None:
    before, after, writer = OwnLogger(), OwnLogger(), Writer()
    before.append, before.append_header = False, True
    writer.write(tmp_path, {"callbacks": callback_state.capture([before], writer)})
    reader = Reader(tmp_path)
    callback_state.append_instead_of_truncating([after])
    after.append_header = False  # as Keras's finds when its file has a line
    callback_state.restore([after], reader.document["callbacks"], reader)
    assert (after.append, after.append_header) == (True, False)
