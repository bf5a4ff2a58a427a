"""Values that a PyDataset holds: marks that tell changes, and an exact form in JSON.

Does: marks a value so that the mark differs if the value does; of large ones it takes samples.
"""

from __future__ import annotations

import array
import io
import itertools
import zlib
from collections import deque
from typing import Any

from reshape_sidecar.hook import script_objects
from reshape_sidecar.hook.script_code import WRAPPED, Place
from reshape_sidecar.hook.values import fill

SAMPLES_MAX = 1000
"""Most items of a list that a mark looks at."""
ARRAY_SAMPLES_MAX = 65536
"""Most numbers of an array that a mark looks at."""
CACHE_BYTES_MAX = 4 << 20
"""Most bytes of arrays that a checkpoint takes of a dictionary that only gets new keys."""
PLAIN = (type(None), bool, int, float, complex, str, bytes)


class Opaque(str):
    """The mark of a value that has no exact form: the name of its type."""

    __slots__ = ()


def is_variable(value: Any) -> bool:
    """Return whether a value is a variable of Keras or TensorFlow."""
    kind = type(value)
    return hasattr(kind, "assign") and hasattr(kind, "numpy") and hasattr(kind, "shape")


def content(value: Any) -> Any:
    """Return the array of a variable, and any other value itself."""
    return value.numpy() if is_variable(value) else value


def mark(value: Any, depth: int = 3) -> Any:
    """Return a value that differs if ``value`` was changed; ``Opaque`` if it cannot tell."""
    import numpy as np

    if isinstance(value, PLAIN):
        return value
    if isinstance(value, np.generic):
        return value.tobytes()
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        step = value.size // ARRAY_SAMPLES_MAX + 1
        return value.shape, zlib.crc32(value.ravel(order="K")[::step].tobytes())
    if isinstance(value, (bytearray, array.array)):
        return len(value), zlib.crc32(bytes(value))
    if depth and isinstance(value, (list, tuple, np.ndarray)):
        return len(value), _marks(value, depth)
    if depth and isinstance(value, (dict, set, frozenset, deque)):
        items = list(value.items() if isinstance(value, dict) else value)
        return len(items), _marks(items, depth)
    if isinstance(value, WRAPPED):
        return value.cache_info().currsize
    if depth and hasattr(value, "__next__") and not isinstance(value, io.IOBase):
        return script_objects.position(value, lambda one: mark(one, depth - 1))
    return Opaque(type(value).__name__)


def _marks(items: Any, depth: int = 3) -> list[Any]:
    step = len(items) // SAMPLES_MAX + 1
    return [mark(one, depth - 1) for one in items[::step]]


def look(value: Any, first: Any) -> Any:
    """Return a mark of ``value`` without the keys and results that it got since mark ``first``."""
    if isinstance(value, WRAPPED):
        return None
    if isinstance(value, dict) and isinstance(first, tuple):
        items = list(itertools.islice(list(value.items()), first[0]))
        return len(items), _marks(items)
    return mark(value)


def is_cache(value: Any, first: Any) -> bool:
    """Return whether ``value`` has got keys or results at most since its mark was ``first``."""
    caches = isinstance(value, (dict, WRAPPED))
    return caches and (first is None or look(value, first) in (None, first))


def is_opened(first: Any, mark: Any) -> bool:
    """Return whether a value is an object that the dataset opens at its first use, such as a file.

    The next process opens it again.
    """
    return first is None and isinstance(mark, Opaque)


def put(place: Place, value: Any, *, in_place: bool) -> None:
    """Give the value at ``place`` the content of ``value``, or the name ``value`` itself."""
    import numpy as np

    there = place.value()
    if is_variable(there):
        there.assign(value)
        return
    if in_place and fill(there, value):
        return
    alike = isinstance(there, np.ndarray) and isinstance(value, np.ndarray)
    if in_place and alike and there.shape == value.shape and there.flags.writeable:
        there[...] = value
        return
    place.rebind(value)
