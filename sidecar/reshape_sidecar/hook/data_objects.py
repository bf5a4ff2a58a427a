"""What a PyDataset changes in Python while it is read: values, and generators of random numbers.

Does: finds the generators and the values that its attributes hold and that its methods use by a
global, enclosed, class or default name; captures those that have changed, and restores them. Never:
calls code of the script.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from reshape_sidecar.hook import randomness, script_code, variables
from reshape_sidecar.hook.data_values import (
    CACHE_BYTES_MAX,
    PLAIN,
    content,
    is_cache,
    is_opened,
    is_variable,
    look,
    mark,
    put,
)
from reshape_sidecar.hook.random_draws import is_generator, seeds
from reshape_sidecar.hook.script_code import Place
from reshape_sidecar.hook.values import (
    INLINE_BYTES_MAX,
    Inline,
    InlineReader,
    Trial,
    Unkeepable,
)

NOT_OF_SCRIPTS = frozenset({"builtins", "h5py", "keras", "numpy", "pandas", "tensorflow"})
"""Packages whose objects are not searched for attributes."""
OBJECTS_MAX = 200
FUNCTIONS_MAX = 50
DRAWS = ""
"""Key of the random numbers in what ``mark`` returns."""


class DataObjects:
    """What a PyDataset reaches: values by name, objects with attributes, and generators.

    ``model``: the one in training; the state of its layers is no state of the data.
    """

    def __init__(self, dataset: Any, model: Any = None) -> None:
        self._model = model
        self._holders: dict[str, Any] = {}
        self._generators: dict[str, Any] = {}
        self._named: dict[str, Place] = {}
        self._functions: set[FunctionType] = set()
        self._classes: set[type] = set()
        self._stored: set[str] = set()
        self._of_process: set[str] = set()
        self._search("self", dataset, 3)
        read = [one for one in self._named.items() if not self._may_change(one[1])]
        for path, _ in read:
            del self._named[path]
        self._first: dict[str, tuple[Any, Any]] = {}
        for path, place in self._places():
            value = place.value()
            self._first[path] = value, mark(content(value))
        self._quick = [
            (path, place)
            for path, place in (*self._places(), *read)
            if isinstance(place.value(), PLAIN)
        ]

    # -- what the dataset reaches -----------------------------------------------------------

    def _search(self, path: str, value: Any, depth: int) -> None:
        known = (*self._holders.values(), *self._generators.values())
        if any(value is one for one in known) or len(known) >= OBJECTS_MAX:
            return
        if hasattr(value, "_flatten_layers") or _is_callback(value):
            if is_generator(value) and not self._is_of_model(value):
                self._generators[path] = value
        elif is_generator(value):
            self._generators[path] = value
        elif depth and isinstance(value, (list, tuple, dict)) and len(value) <= OBJECTS_MAX:
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for name, item in list(items):
                if is_variable(item):
                    self._named[f"{path}[{name}]"] = Place(f"{path}[{name}]", None, alone=item)
                self._search(f"{path}[{name}]", item, depth - 1)
        elif depth and _has_attributes(value):
            self._holders[path] = value
            self._follow_class(type(value))
            for name, item in script_code.attributes(value).items():
                self._search(f"{path}.{name}", item, depth - 1)
                self._follow_code(item)

    def _follow_class(self, kind: type) -> None:
        if kind in self._classes:
            return
        self._classes.add(kind)
        for place in script_code.class_values(kind, _is_of_data):
            self._name(f"{kind.__module__}:{place.name}", place)
        for function in script_code.methods(kind, _is_of_data):
            self._follow_function(function)

    def _follow_code(self, value: Any) -> None:
        if isinstance(value, type) and _is_of_data(value):
            self._follow_class(value)
        for function in script_code.functions_in(value):
            self._follow_function(function)

    def _follow_function(self, function: FunctionType) -> None:
        if function in self._functions or len(self._functions) >= FUNCTIONS_MAX:
            return
        self._functions.add(function)
        self._stored |= script_code.stored_names(function)
        self._of_process |= script_code.process_names(function)
        for place in script_code.outer_names(function):
            value = place.value()
            self._follow_code(value)
            if isinstance(value, FunctionType) and value.__globals__ is function.__globals__:
                self._follow_function(value)
            elif not isinstance(value, (type, FunctionType, ModuleType)):
                self._name(f"{function.__module__}:{place.name}", place)

    def _name(self, path: str, place: Place) -> None:
        known = self._named.get(path)
        if known is not None and known.identity() != place.identity():
            path = f"{path} ({len(self._named)})"
        self._named[path] = place
        self._search(path, place.value(), 3)

    def _may_change(self, place: Place) -> bool:
        """Return whether the dataset may change the value of a name."""
        if isinstance(place.value(), (*PLAIN, tuple, frozenset)):
            return (place.key or place.name) in self._stored - self._of_process
        return True

    def _is_of_model(self, layer: Any) -> bool:
        flatten = getattr(self._model, "_flatten_layers", tuple)
        return any(one is layer for one in flatten())

    def _places(self) -> Iterator[tuple[str, Place]]:
        """Yield the places of all values, those of attributes that came later among them."""
        places = list(self._named.items())
        for path, holder in self._holders.items():
            places += [
                (f"{path}.{name}", Place(name, holder, name))
                for name in script_code.attributes(holder)
            ]
        own = variables.handles(self._model) if self._model is not None else ()
        for path, place in places:
            value = place.value()
            backing = getattr(value, "_value", value)
            if not is_variable(value) or id(getattr(backing, "handle", None)) not in own:
                yield path, place

    # -- what has changed -------------------------------------------------------------------

    def capture(self, *, impure: bool = False) -> dict[str, Any]:
        """Return the state of the generators, and the values that have changed.

        ``impure``: what the dataset caches depends on more than the keys.
        """
        changed: dict[str, Any] = {}
        unkeepable = []
        for path, place, first in self._changes():
            value = place.value()
            caches = is_cache(value, first)
            writer = Inline(CACHE_BYTES_MAX if caches else INLINE_BYTES_MAX)
            try:
                encoded = writer.encode(content(value))
                changed[path] = [encoded, value is self._first.get(path, (None,))[0]]
            except Unkeepable:
                if impure or not caches:
                    unkeepable.append(place.name)
        generators = {path: _state(one) for path, one in self._generators.items()}
        return {"places": changed, "generators": generators, "unkeepable": unkeepable}

    def changed(self) -> list[str]:
        """Return the names of the values that have changed; those of caches are left out."""
        return [
            place.name for _, place, first in self._changes() if not is_cache(place.value(), first)
        ]

    def unkeepable(self, *, impure: bool) -> list[str]:
        """Return the names of the changed values that have no exact form, as ``capture`` does."""
        names = []
        for _, place, first in self._changes():
            caches = is_cache(place.value(), first)
            try:
                Trial(CACHE_BYTES_MAX if caches else INLINE_BYTES_MAX).encode(
                    content(place.value())
                )
            except Unkeepable:
                if impure or not caches:
                    names.append(place.name)
        return names

    def _changes(self) -> Iterator[tuple[str, Place, Any]]:
        """Yield path, place and first mark of each value that has changed."""
        for path, place in self._places():
            first = self._first.get(path, (None, None))[1]
            now = mark(content(place.value()))
            if now != first and not is_opened(first, now):
                yield path, place, first

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore what ``capture`` returned into the objects of this process."""
        reader = InlineReader()
        values = {path: (value, True) for path, value in _of_older_hook(saved)}
        values.update(saved.get("places", {}))
        places = dict(self._places())
        for path, (value, in_place) in values.items():
            holder, _, name = path.rpartition(".")
            place = places.get(path)
            if place is None and holder in self._holders:
                place = Place(name, self._holders[holder], name)
            if place is not None:
                with contextlib.suppress(AttributeError):  # the script allows no such attribute
                    put(place, reader.decode(value), in_place=in_place)
        for path, state in saved.get("generators", {}).items():
            if path in self._generators:
                _set_state(self._generators[path], state)

    def mark(self, *, draws: bool, whole: bool) -> dict[str, Any]:
        """Return marks of what the dataset uses: of numbers and texts by name at least.

        ``draws``: of random numbers too, under the key ``DRAWS``; ``whole``: of collections and
        arrays too.
        """
        import numpy as np

        found = {path: place.value() for path, place in self._quick}
        if draws:
            state: Any = np.random.get_state()
            own = [str(_state(one)) for one in self._generators.values()]
            found[DRAWS] = (state[1].tobytes(), *state[2:], random.getstate(), *own)
        for path, place in self._places() if whole else ():
            first = self._first.get(path, (None, None))[1]
            found[path] = look(content(place.value()), first)
        return found


def _of_older_hook(saved: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for path, values in saved.get("attributes", {}).items():
        for name, value in values.items():
            yield f"{path}.{name}", value


def _is_callback(value: Any) -> bool:
    """Return whether a value is a callback of Keras, whose attributes are restored elsewhere."""
    return hasattr(value, "set_params") and hasattr(value, "on_train_batch_end")


def _is_of_data(kind: type) -> bool:
    """Return whether a class may be the script's or that of a library for data."""
    root = kind.__module__.split(".")[0]
    return root not in NOT_OF_SCRIPTS and root not in sys.stdlib_module_names - {"__main__"}


def _has_attributes(value: Any) -> bool:
    if isinstance(value, (type, FunctionType)) or not _is_of_data(type(value)):
        return False
    slots = any("__slots__" in vars(kind) for kind in type(value).__mro__[:-1])
    return slots or isinstance(getattr(value, "__dict__", None), dict)


def _variables(generator: Any) -> list[Any]:
    import keras

    if isinstance(generator, keras.Layer):
        return list(seeds(generator))
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
