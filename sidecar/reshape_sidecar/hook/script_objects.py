"""Values of the script that its callbacks reach and change.

Does: follows the code of the callbacks to global, enclosed and attribute values, notes what they
are when a ``fit`` begins, and names those that are different later. Numbers and texts that the
callbacks' code binds to a name are captured and restored, but for those that mean something in one
process alone, as descriptors do. Attributes of a callback with an exact
form are left out: ``callback_state`` restores them, also if the script shares them.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import itertools
import math
import operator
import random
import sys
import types
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from reshape_sidecar.hook import process_state, script_code, variables
from reshape_sidecar.hook.callback_state import NEVER_KEPT, SKIPPED_CLASSES
from reshape_sidecar.hook.script_code import Place
from reshape_sidecar.hook.values import Inline, InlineReader, Unkeepable, Writer

PLAIN = frozenset({str, int, float, bool, bytes, complex, type(None)})
COUNTS = frozenset({int, bool})
"""Types of counters and flags. One that is a variable of the script is not compared."""
ITEMS_MAX = 1000
"""Most items of a collection that are compared; of a longer one the length is."""
DEPTH_MAX = 5
ARRAY_BYTES_MAX = 1 << 20
"""Most bytes of arrays and variables in one value that are compared; of others the shape is."""
ITEM_BYTES = 8
"""Assumed bytes of an item of an array."""
SLOTS_MAX = 500
"""Most values that are followed."""


class ScriptObjects:
    """The values that the callbacks of one fit reach, and what they were at its start."""

    def __init__(self, callbacks: list[Any], model: Any) -> None:
        self._own = variables.handles(model)
        self._restored: set[int] = set()
        self._functions: set[types.FunctionType] = set()
        self._classes: set[type] = set()
        self._slots: dict[str, Place] = {}
        self._places: set[tuple[int, str]] = set()
        self._before: dict[str, Any] = {}
        self._callbacks = callbacks
        self._stored: set[str] = set()
        self._of_process: set[str] = set()
        for callback in callbacks:
            if type(callback).__name__ not in SKIPPED_CLASSES:
                self._follow_callback(callback)
        for name, place in self._slots.items():
            self._before[name] = self._seen(place)
        self._first = {name: place.value() for name, place in self._slots.items()}

    def changed(self) -> list[str]:
        """Return the names of the values that have changed since, each once."""
        names = [
            name
            for name, before in self._before.items()
            if not self._is_restored(self._slots[name]) and self._seen(self._slots[name]) != before
        ]
        for name in names:
            del self._before[name]
        return names

    def _is_restored(self, place: Place) -> bool:
        stored = self._stored - self._of_process
        return (place.key or place.name) in stored and _is_constant(place.value())

    def capture(self) -> dict[str, Any]:
        """Return the numbers and texts that callbacks have bound to names, as plain JSON values."""
        bound = {}
        for name, place in self._slots.items():
            value, first = place.value(), self._first[name]
            if self._is_restored(place) and (type(value) is not type(first) or value != first):
                bound[name] = Inline().encode(value)
        return {"bound": bound, "process": self._process() if bound else {}}

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore what ``capture`` returned.

        Flags that may tell of threads, files or profilers of the process before are left out.
        """
        again = saved.get("process", {}) == self._process()
        switches = set() if again else script_code.switches(self._functions)
        for name, encoded in saved.get("bound", {}).items():
            value = InlineReader().decode(encoded)
            place = self._slots.get(name)
            if place is None:
                continue
            flag = isinstance(value, bool) or (place.key or name) in switches
            if again or not flag:
                place.rebind(value)

    def _process(self) -> dict[str, str]:
        """Return what threads, files and profilers that the callbacks reach do at the moment."""
        found = {name: process_state.condition(one.value()) for name, one in self._slots.items()}
        for callback in self._callbacks:
            for name, value in vars(callback).items():
                if name not in NEVER_KEPT:
                    found[f"{type(callback).__name__}.{name}"] = process_state.condition(value)
        if any(map(process_state.profiles, self._callbacks)):
            found[""] = "a profiler"
        return {name: doing for name, doing in found.items() if doing is not None}

    # -- what callbacks reach ---------------------------------------------------------------

    def _follow_callback(self, callback: Any) -> None:
        kind = type(callback)
        own = script_code.of_script(kind)
        for name, value in list(vars(callback).items()):
            if name in NEVER_KEPT:
                continue
            if _keepable(value):
                if type(value) not in PLAIN:
                    self._restored.add(id(value))
            elif own or script_code.of_script(type(value)):
                self._follow(Place(f"{kind.__name__}.{name}", None, alone=value))
            else:
                self._follow_functions(value)
        self._follow_class(kind)

    def _follow_class(self, kind: type) -> None:
        if kind in self._classes:
            return
        self._classes.add(kind)
        for place in script_code.class_values(kind):
            self._follow(place)
        for function in script_code.methods(kind):
            self._follow_function(function)

    def _follow_function(self, function: types.FunctionType) -> None:
        if function in self._functions or len(self._slots) >= SLOTS_MAX:
            return
        self._functions.add(function)
        self._stored |= script_code.stored_names(function)
        self._of_process |= script_code.process_names(function)
        for place in script_code.outer_names(function):
            self._follow(place)

    def _follow(self, place: Place) -> None:
        value = place.value()
        self._follow_functions(value)
        kind = value if isinstance(value, type) else type(value)
        if script_code.of_script(kind):
            self._follow_class(kind)
        if not _is_code(value) and place.identity() not in self._places:
            self._places.add(place.identity())
            name = place.name
            taken = sum(known.partition(" (")[0] == name for known in self._slots)
            self._slots[f"{name} ({taken + 1})" if taken else name] = place

    def _follow_functions(self, value: Any) -> None:
        owner = getattr(value, "__self__", None)
        if isinstance(value, types.MethodType) and script_code.of_script(type(owner)):
            self._follow(Place(type(owner).__name__, None, alone=owner))
        if isinstance(value, functools.partial):
            for argument in (*value.args, *value.keywords.values()):
                self._follow(Place("an argument of a partial", None, alone=argument))
        for function in script_code.functions_in(value):
            self._follow_function(function)

    # -- what they are ------------------------------------------------------------------------

    def _seen(self, place: Place) -> Any:
        value = place.value()
        if id(value) in self._restored:
            return None
        with contextlib.suppress(Exception):  # it changes while it is read, or is a strange object
            return self._form(value, DEPTH_MAX)
        return None

    def _form(self, value: Any, depth: int) -> Any:
        """Return a value that differs if ``value`` was changed; the type alone if it is opaque."""
        kind = type(value)
        if kind in COUNTS and depth == DEPTH_MAX:
            return "a count"
        if kind in PLAIN:
            return kind.__name__, repr(value) if kind is float else value
        if depth == 0 or _is_code(value):
            return kind.__name__
        if isinstance(value, (list, tuple, deque, set, frozenset, dict)):
            return kind.__name__, len(value), self._forms(_items(value), depth)
        if isinstance(value, random.Random):
            return kind.__name__, value.getstate()
        if isinstance(value, (bytearray, io.StringIO, io.BytesIO)):
            return kind.__name__, bytes(value) if isinstance(value, bytearray) else value.tell()
        if hasattr(value, "__next__"):
            return kind.__name__, position(value, lambda one: self._form(one, depth - 1))
        if hasattr(value, "bit_generator") or kind.__name__ == "RandomState":
            generator = getattr(value, "bit_generator", None)
            return kind.__name__, repr(value.get_state() if generator is None else generator.state)
        arrays = self._arrays(value)
        if arrays is not None:
            return kind.__name__, _digests(arrays)
        if script_code.of_script(kind) or kind is types.SimpleNamespace:
            return kind.__name__, self._forms(_items(script_code.attributes(value)), depth)
        return kind.__name__

    def _forms(self, items: Any, depth: int) -> tuple[Any, ...]:
        return tuple(self._form(item, depth - 1) for item in items)

    def _arrays(self, value: Any) -> list[Any] | None:
        """Return the arrays in ``value``, but for variables of the model in training."""
        if hasattr(value, "dtype") and hasattr(value, "shape") and not hasattr(value, "assign"):
            return [value]
        found = [value] if hasattr(value, "assign") else getattr(value, "variables", None)
        if not isinstance(found, (list, tuple)):
            return None
        backings = [getattr(variable, "_value", variable) for variable in found]
        return [one for one in backings if id(getattr(one, "handle", None)) not in self._own]


COMPOSED = (enumerate, filter, map, zip, itertools.chain, itertools.islice)
"""Iterators of Python that read others."""


def position(iterator: Any, form: Callable[[Any], Any]) -> Any:
    """Return a value that differs after each item that an iterator of Python has given.

    ``form`` returns that of another value.
    """
    if isinstance(iterator, types.GeneratorType):
        frame = iterator.gi_frame
        return frame and (frame.f_lasti, [form(one) for one in list(frame.f_locals.values())])
    if isinstance(iterator, itertools.cycle):
        reduced: Any = iterator.__reduce__()
        (inner,), (items, _) = reduced[1:]
        return operator.length_hint(inner, 0), len(items)
    if isinstance(iterator, itertools.count):
        return repr(iterator)
    if isinstance(iterator, COMPOSED):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return _parts(iterator.__reduce__()[1:], form)
    return operator.length_hint(iterator, 0)


def _parts(value: Any, form: Callable[[Any], Any]) -> Any:
    """Return where the iterators in a tuple are, and its numbers."""
    if isinstance(value, tuple):
        return [_parts(one, form) for one in value if not callable(one)]
    return position(value, form) if hasattr(type(value), "__next__") else repr(value)


def _is_constant(value: Any) -> bool:
    """Return whether a value has an exact form and cannot be changed in place."""
    if isinstance(value, tuple):
        return type(value) is tuple and all(map(_is_constant, value))
    scalars = getattr(sys.modules.get("numpy"), "generic", ())
    return type(value) in PLAIN - {complex} or (isinstance(value, scalars) and _keepable(value))


def _items(value: Any) -> Iterator[Any]:
    if len(value) > ITEMS_MAX or isinstance(value, (set, frozenset)):
        return
    if isinstance(value, dict):
        yield from value.keys()
        yield from value.values()
    else:
        yield from value


def _digests(arrays: list[Any]) -> list[Any]:
    """Return the shape of each array, and a digest of those that are small enough in total."""
    import numpy as np

    out, left_bytes = [], ARRAY_BYTES_MAX
    for array in arrays:
        shape = tuple(map(int, array.shape))
        size_bytes = math.prod(shape) * ITEM_BYTES
        digest = b""
        if size_bytes <= left_bytes:
            left_bytes -= size_bytes
            data = np.asarray(array.numpy() if hasattr(array, "numpy") else array)
            digest = hashlib.blake2b(data.tobytes(), digest_size=8).digest()
        out.append((shape, digest))
    return out


def _is_code(value: Any) -> bool:
    return isinstance(
        value, (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)
    )


def _keepable(value: Any) -> bool:
    try:
        Writer().encode(value)
    except Unkeepable:
        return False
    return True
