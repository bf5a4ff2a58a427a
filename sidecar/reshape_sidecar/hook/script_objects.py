"""Objects of the script that its callbacks reach and change, and that no checkpoint holds.

Does: follows the code of the callbacks to global, enclosed and attribute values, notes what they
are when a ``fit`` begins, and names those that are different later. Attributes of a callback with
an exact form are left out: ``callback_state`` restores them, also if the script shares them.
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
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from reshape_sidecar.hook import script_code, variables
from reshape_sidecar.hook.callback_state import NEVER_KEPT, SKIPPED_CLASSES
from reshape_sidecar.hook.values import Unkeepable, Writer

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

Getter = Callable[[], Any]


class ScriptObjects:
    """The values that the callbacks of one fit reach, and what they were at its start."""

    def __init__(self, callbacks: list[Any], model: Any) -> None:
        self._own = variables.handles(model)
        self._restored: set[int] = set()
        self._functions: set[types.FunctionType] = set()
        self._classes: set[type] = set()
        self._slots: dict[str, Getter] = {}
        self._places: set[tuple[Any, ...]] = set()
        self._before: dict[str, Any] = {}
        for callback in callbacks:
            if type(callback).__name__ not in SKIPPED_CLASSES:
                self._follow_callback(callback)
        for name, getter in self._slots.items():
            self._before[name] = self._seen(getter)

    def changed(self) -> list[str]:
        """Return the names of the values that have changed since, each once."""
        names = [
            name for name, before in self._before.items() if self._seen(self._slots[name]) != before
        ]
        for name in names:
            del self._before[name]
        return names

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
                self._follow(
                    f"{kind.__name__}.{name}", functools.partial(script_code.itself, value)
                )
            else:
                self._follow_functions(value)
        self._follow_class(kind)

    def _follow_class(self, kind: type) -> None:
        if kind in self._classes:
            return
        self._classes.add(kind)
        for name, getter in script_code.class_values(kind):
            self._follow(name, getter)
        for function in script_code.methods(kind):
            self._follow_function(function)

    def _follow_function(self, function: types.FunctionType) -> None:
        if function in self._functions or len(self._slots) >= SLOTS_MAX:
            return
        self._functions.add(function)
        for name, getter in script_code.outer_names(function):
            self._follow(name, getter)

    def _follow(self, name: str, getter: Getter) -> None:
        value = script_code.value_of(getter)
        self._follow_functions(value)
        kind = value if isinstance(value, type) else type(value)
        if script_code.of_script(kind):
            self._follow_class(kind)
        place = _place(getter)
        if not _is_code(value) and place not in self._places:
            self._places.add(place)
            taken = sum(known.partition(" (")[0] == name for known in self._slots)
            self._slots[f"{name} ({taken + 1})" if taken else name] = getter

    def _follow_functions(self, value: Any) -> None:
        owner = getattr(value, "__self__", None)
        if isinstance(value, types.MethodType) and script_code.of_script(type(owner)):
            self._follow(type(owner).__name__, functools.partial(script_code.itself, owner))
        if isinstance(value, functools.partial):
            for argument in (*value.args, *value.keywords.values()):
                self._follow(
                    "an argument of a partial", functools.partial(script_code.itself, argument)
                )
        for function in script_code.functions_in(value):
            self._follow_function(function)

    # -- what they are ------------------------------------------------------------------------

    def _seen(self, getter: Getter) -> Any:
        value = script_code.value_of(getter)
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
            return kind.__name__, self._forms(_items(_attributes(value)), depth)
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
    counts = isinstance(iterator, itertools.count)
    return repr(iterator) if counts else operator.length_hint(iterator, 0)


def _place(getter: Getter) -> tuple[Any, ...]:
    """Return what tells the getters of two values apart that have the same name."""
    if not isinstance(getter, functools.partial):
        return (id(getter),)
    owner = getattr(getter.func, "__self__", None)
    return id(owner), *(one if isinstance(one, str) else id(one) for one in getter.args)


def _attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of an object, those in ``__slots__`` among them."""
    found = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        for name, one in vars(kind).items():
            if isinstance(one, types.MemberDescriptorType):
                with contextlib.suppress(AttributeError):  # a slot without a value
                    found[name] = one.__get__(value)
    return found


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
