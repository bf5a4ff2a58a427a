"""What a PyDataset changes in Python while it is read: its attributes and generators of numbers.

Does: finds the generators of random numbers that its attributes hold and that its methods use, and
the attributes with plain values; captures those that have changed, and restores them. Never: calls
code of the script.
"""

from __future__ import annotations

import base64
import io
import random
import sys
import zlib
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from reshape_sidecar.hook import randomness, script_objects, variables
from reshape_sidecar.hook.custom_step import names_in
from reshape_sidecar.hook.values import Reader, Unkeepable, Writer

NOT_OF_SCRIPTS = frozenset({"builtins", "h5py", "keras", "numpy", "pandas", "tensorflow"})
"""Packages whose objects are not searched for attributes."""
OBJECTS_MAX = 200
FUNCTIONS_MAX = 50
SAMPLES_MAX = 1000
"""Most items of a list that a mark looks at."""
ARRAY_SAMPLES_MAX = 65536
"""Most numbers of an array that a mark looks at."""
INLINE_BYTES_MAX = 32 << 20
"""Most bytes of arrays that a checkpoint takes of one attribute, such as a cache of samples."""
PLAIN = (type(None), bool, int, float, complex, str, bytes)


class Opaque(str):
    """The mark of a value that has no exact form: the name of its type."""

    __slots__ = ()


class Inline(Writer):
    """Encodes arrays into the JSON values themselves."""

    def __init__(self) -> None:
        super().__init__()
        self._left_bytes = INLINE_BYTES_MAX

    def _add(self, array: Any) -> Any:
        self._left_bytes -= array.nbytes
        if self._left_bytes < 0:
            raise Unkeepable(f"more than {INLINE_BYTES_MAX} bytes")
        data = base64.b64encode(array.tobytes()).decode()
        return [str(array.dtype), list(array.shape), data]


class InlineReader(Reader):
    """Decodes what ``Inline`` encoded."""

    def __init__(self) -> None:
        pass

    def _array(self, number: Any) -> Any:
        import numpy as np

        kind, shape, data = number
        return np.frombuffer(base64.b64decode(data), kind).reshape(shape).copy()


class DataObjects:
    """Objects that a PyDataset reaches: those with attributes, and generators of numbers."""

    def __init__(self, dataset: Any) -> None:
        self._holders: dict[str, Any] = {}
        self._generators: dict[str, Any] = {}
        for path, value in _roots(dataset):
            self._search(path, value, 3)
        self._marks = {path: _marks(one) for path, one in self._holders.items()}

    def _search(self, path: str, value: Any, depth: int) -> None:
        known = (*self._holders.values(), *self._generators.values())
        if any(value is one for one in known) or len(known) >= OBJECTS_MAX:
            return
        if _is_generator(value):
            self._generators[path] = value
        elif depth and isinstance(value, (list, tuple, dict)) and len(value) <= OBJECTS_MAX:
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for name, item in items:
                self._search(f"{path}[{name}]", item, depth - 1)
        elif depth and _has_attributes(value):
            self._holders[path] = value
            for name, item in list(vars(value).items()):
                self._search(f"{path}.{name}", item, depth - 1)

    def capture(self) -> dict[str, Any]:
        """Return the state of the generators, and the attributes that have changed."""
        changed: dict[str, Any] = {}
        unkeepable = []
        for path, holder in self._holders.items():
            first = self._marks[path]
            for name, mark in _marks(holder).items():
                if first.get(name) != mark and not _is_opened(first.get(name, mark), mark):
                    try:
                        changed.setdefault(path, {})[name] = Inline().encode(vars(holder)[name])
                    except Unkeepable:
                        unkeepable.append(name)
        generators = {path: _state(one) for path, one in self._generators.items()}
        return {"attributes": changed, "generators": generators, "unkeepable": unkeepable}

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore what ``capture`` returned into the objects of this process."""
        reader = InlineReader()
        for path, values in saved.get("attributes", {}).items():
            if path in self._holders:
                for name, value in values.items():
                    _put(self._holders[path], name, reader.decode(value))
        for path, state in saved.get("generators", {}).items():
            if path in self._generators:
                _set_state(self._generators[path], state)

    def mark(self) -> tuple[Any, ...]:
        """Return a value that differs after each draw from a generator of the process."""
        import numpy as np

        state: Any = np.random.get_state()
        own = [str(_state(one)) for one in self._generators.values()]
        return (state[1].tobytes(), *state[2:], random.getstate(), *own)


def _roots(dataset: Any) -> Iterator[tuple[str, Any]]:
    """Yield the dataset, and what names in the code of its methods stand for."""
    yield "self", dataset
    waiting = [
        value
        for kind in type(dataset).__mro__
        if kind.__module__.split(".")[0] not in NOT_OF_SCRIPTS
        for value in vars(kind).values()
        if isinstance(value, FunctionType)
    ]
    known: set[int] = set()
    while waiting and len(known) < FUNCTIONS_MAX:
        function = waiting.pop()
        if id(function.__code__) in known:
            continue
        known.add(id(function.__code__))
        used = {
            name: function.__globals__[name]
            for name in names_in(function.__code__)
            if name in function.__globals__
        }
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=True
        ):
            if cell != type(cell)():  # not empty
                used[name] = cell.cell_contents
        for name, value in used.items():
            if isinstance(value, FunctionType) and value.__globals__ is function.__globals__:
                waiting.append(value)
            elif _is_generator(value) or isinstance(value, (list, dict)) or _has_attributes(value):
                yield f"{function.__module__}:{name}", value


def _has_attributes(value: Any) -> bool:
    kind = type(value)
    root = kind.__module__.split(".")[0]
    if isinstance(value, (type, FunctionType)) or not isinstance(
        getattr(value, "__dict__", 0), dict
    ):
        return False
    return root not in NOT_OF_SCRIPTS and root not in sys.stdlib_module_names - {"__main__"}


def _is_generator(value: Any) -> bool:
    import keras
    import numpy as np
    import tensorflow

    if isinstance(value, keras.Layer):
        return bool(list(_seeds(value)))
    kinds = (
        *(np.random.Generator, np.random.RandomState, random.Random),
        *(keras.random.SeedGenerator, tensorflow.random.Generator),
    )
    return isinstance(value, kinds) and not isinstance(value, random.SystemRandom)


def _seeds(layer: Any) -> Iterator[Any]:
    for one in layer._flatten_layers():
        for generator in getattr(one, "_seed_generators", None) or ():
            yield generator.state


def _variables(generator: Any) -> list[Any]:
    import keras

    if isinstance(generator, keras.Layer):
        return list(_seeds(generator))
    return [generator.state]


def _state(generator: Any) -> Any:
    import numpy as np

    if isinstance(generator, np.random.Generator):
        return Inline().encode(generator.bit_generator.state)
    if isinstance(generator, np.random.RandomState):
        return Inline().encode(generator.get_state(legacy=False))
    if isinstance(generator, random.Random):
        return Inline().encode(generator.getstate())
    return [Inline().encode(one.numpy()) for one in _variables(generator)]


def _set_state(generator: Any, state: Any) -> None:
    import numpy as np

    reader = InlineReader()
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = reader.decode(state)
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(reader.decode(state))
    elif isinstance(generator, random.Random):
        generator.setstate(reader.decode(state))
    else:
        for variable, value in zip(_variables(generator), state, strict=True):
            variable.assign(reader.decode(value))


def process_state() -> dict[str, Any]:
    """Return the state of the generators that belong to no object, as plain JSON values."""
    seeds = [Inline().encode(seed.numpy()) for seed in variables.global_seed()]
    return {**randomness.capture(), "keras": seeds}


def restore_process_state(saved: dict[str, Any]) -> None:
    """Restore what ``process_state`` returned."""
    randomness.restore(saved)
    for seed, value in zip(variables.global_seed(), saved["keras"], strict=False):
        seed.assign(InlineReader().decode(value))


def _marks(holder: Any) -> dict[str, Any]:
    """Return a mark of each attribute with plain values; it differs when the value does."""
    return {name: _mark(value) for name, value in list(vars(holder).items())}


def _mark(value: Any, depth: int = 3) -> Any:
    import numpy as np

    if isinstance(value, PLAIN):
        return value
    if isinstance(value, np.generic):
        return value.tobytes()
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        step = value.size // ARRAY_SAMPLES_MAX + 1
        return value.shape, zlib.crc32(value.reshape(-1)[::step].tobytes())
    if depth and isinstance(value, (list, tuple, np.ndarray)):
        step = len(value) // SAMPLES_MAX + 1
        return len(value), [_mark(one, depth - 1) for one in value[::step]]
    if depth and isinstance(value, (dict, set, frozenset)):
        items = list(value.items() if isinstance(value, dict) else value)
        step = len(items) // SAMPLES_MAX + 1
        return len(items), [_mark(one, depth - 1) for one in items[::step]]
    if depth and hasattr(value, "__next__") and not isinstance(value, io.IOBase):
        return script_objects.position(value, lambda one: _mark(one, depth - 1))
    return Opaque(type(value).__name__)


def _is_opened(first: Any, mark: Any) -> bool:
    """Return whether an attribute is an object that the dataset opens at its first use, such as a
    file: the next process opens it again."""
    return first is None and isinstance(mark, Opaque)


def _put(holder: Any, name: str, value: Any) -> None:
    import numpy as np

    there = vars(holder).get(name)
    if type(there) is type(value):
        if isinstance(there, list):
            there[:] = value
            return
        if isinstance(there, dict):
            there.clear()
            there.update(value)
            return
        if isinstance(there, np.ndarray) and there.shape == value.shape and there.flags.writeable:
            there[...] = value
            return
    setattr(holder, name, value)
