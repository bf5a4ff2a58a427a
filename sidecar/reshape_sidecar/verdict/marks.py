"""Marks of a script's values: they are equal as long as a value is, as far as a look compares.

Does: marks data, and the content of objects that are none and that nothing restores, such as a
queue. The mark of a large value is that of a sample or a sum, so it holds little.
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any

from reshape_sidecar.verdict import forms
from reshape_sidecar.verdict.forms import ITEMS_MAX, PLAIN, torch

WHOLE_BYTES = 1 << 16
"""An array of at most so many bytes is compared whole by every look."""
SAMPLE = 64
"""Numbers of a larger array that a look compares."""
DEEP_BYTES_MAX = 1 << 28
"""A look at a save compares all bytes of an array up to this size."""
BASES: dict[type, Callable[[Any], str]] = {
    one: one.__repr__ for one in (int, float, complex, str, bytes)
}
"""Classes from which a script's own numbers and texts come, and what shows the value."""


class Marker:
    """Makes marks: values that are equal as long as the data are, as far as a look compares."""

    def __init__(self, *, deep: bool, names: forms.Names = forms.NAMELESS) -> None:
        """``deep``: compare all bytes of large arrays too. ``names``: of objects as keys."""
        self._deep, self._names = deep, names
        self._left = 0

    def mark(self, value: Any) -> Any:
        """Return the mark of data."""
        self._left = ITEMS_MAX
        return self._mark(value, 0)

    def _mark(self, value: Any, depth: int) -> Any:
        self._left -= 1
        kind = type(value)
        if kind is float or kind is complex:
            return repr(value)
        if kind is bytearray:
            return bytes(value)
        if kind in PLAIN:
            return (kind.__name__, value) if kind is bool else value
        if forms.is_tensor(value):
            return self._tensor(value)
        if forms.is_generator(value):
            state = forms.generator_state(value)
            return (
                _digest(state.numpy()) if forms.is_tensor(state) else _digest(repr(state).encode())
            )
        if kind in forms.MAPPINGS:
            items = [
                (self._key(key), self._mark(item, depth + 1))
                for key, item in _some(value.items(), self)
            ]
            return kind.__name__, len(value), items
        if kind in forms.SETS:
            return kind.__name__, len(value), sorted(map(repr, islice(value, ITEMS_MAX)))
        if kind in forms.SEQUENCES or forms.is_named_tuple(kind):
            return (
                kind.__name__,
                len(value),
                [self._mark(one, depth + 1) for one in _some(value, self)],
            )
        if forms.is_frozen(kind):
            fields = forms.fields_of(value)
            return kind.__name__, [self._mark(one, depth + 1) for one in fields.values()]
        if hasattr(value, "tobytes"):
            return self._array(value)
        return repr(value)

    def _key(self, key: Any) -> Any:
        if type(key) is int:
            return self._names.get(key, key)
        return key if type(key) in PLAIN else self._names.get(id(key)) or repr(key)

    def content(self, value: Any) -> Any:
        """Return the mark of what an object holds that is no data; None if that is not known."""
        reader = reader_of(value)
        if reader is None:
            return None
        found = reader(value)
        if isinstance(found, str):
            found = found.encode(errors="surrogatepass")
        return _digest(found) if isinstance(found, bytes) else self.mark(found)

    def _tensor(self, tensor: Any) -> Any:
        """Return shape, type, and the numbers or a sample."""
        library = torch()
        flat = tensor.detach()
        about = (forms.shape_of(tensor), str(tensor.dtype), str(tensor.layout))
        if not forms.is_strided(flat):
            return *about, [self._tensor(part) for part in _parts(flat)]
        flat = flat.resolve_conj().resolve_neg()
        if flat.is_complex():
            flat = library.view_as_real(flat)
        size_bytes = flat.numel() * flat.element_size()
        if flat.device.type == "meta":
            return about
        if size_bytes <= WHOLE_BYTES:
            whole = flat.reshape(-1).cpu().contiguous()
            return *about, _digest(whole.view(library.uint8).numpy()) if flat.numel() else b""
        sample = _spread(flat, library)
        if self._deep and size_bytes <= DEEP_BYTES_MAX:
            return *about, sample, _sum_of(flat, library)
        return *about, sample, Local(_version(tensor))

    def _array(self, array: Any) -> Any:
        about = (getattr(array, "shape", ()), str(array.dtype))
        if array.nbytes <= WHOLE_BYTES:
            return *about, _digest(array.tobytes())
        flat = array.reshape(-1) if array.flags.c_contiguous else array.flat
        sample = flat[:: max(1, array.size // SAMPLE)].tobytes()
        if self._deep and array.nbytes <= DEEP_BYTES_MAX:
            return (
                *about,
                sample,
                zlib.crc32(array if array.flags.c_contiguous else array.tobytes()),
            )
        return *about, sample


def _parts(tensor: Any) -> tuple[Any, ...]:
    """Return the tensors that make up one that is not strided: nested, quantized or sparse."""
    if tensor.is_nested:
        return tuple(tensor.unbind())
    if tensor.is_quantized:
        return (tensor.dequantize(),)
    coordinates = tensor.to_sparse()
    return coordinates._indices(), coordinates._values()


def reader_of(value: Any) -> Callable[[Any], Any] | None:
    """Return what reads, as data, the content of an object of Python's library or NumPy that
    no look enters and nothing restores; None if none is known."""
    kind = type(value)
    numpy = sys.modules.get("numpy")
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name in CONTENTS:
        return CONTENTS[name]
    for base, shown in BASES.items():
        if isinstance(value, base):
            return shown
    if kind.__module__ == "multiprocessing.sharedctypes":  # shared with the workers of a loader
        return lambda shared: bytes(shared.get_obj())
    ctypes = sys.modules.get("ctypes")
    if ctypes is not None and isinstance(
        value, (ctypes._SimpleCData, ctypes.Array, ctypes.Structure, ctypes.Union)
    ):
        return bytes
    if numpy is not None:
        if isinstance(value, (numpy.ndarray, numpy.void)):
            return _items_of_array if value.dtype.hasobject else _as_it_is
        if isinstance(value, (numpy.random.BitGenerator, numpy.random.SeedSequence)):
            return lambda source: repr(source.state)
    if kind.__module__.partition(".")[0] in PICKLED:
        return _pickled
    return None


def _as_it_is(value: Any) -> Any:
    return value


def _items(values: Iterable[Any]) -> list[Any]:
    """Return the items that are data, and of others the type."""
    return [
        one if forms.is_data(one) else type(one).__qualname__ for one in islice(values, ITEMS_MAX)
    ]


def _is_in_memory(store: Any) -> bool:
    """Return whether a connection to SQLite has no file."""
    return not any(file for _, _, file in store.execute("PRAGMA database_list"))


class _Full(Exception):
    """More is pickled than a look compares."""


class _Head(bytearray):
    """A file that takes the first bytes, and no more."""

    def write(self, more: bytes) -> None:
        self.extend(more)
        if len(self) > WHOLE_BYTES:
            raise _Full


def _pickled(value: Any) -> list[Any]:
    """Return the digest of how a value is pickled, and the arrays that it holds, uncopied."""
    head, arrays = _Head(), list[pickle.PickleBuffer]()
    with contextlib.suppress(_Full):
        pickle.Pickler(head, 5, buffer_callback=arrays.append).dump(value)
    return [_digest(head), *(sys.modules["numpy"].asarray(one.raw()) for one in arrays)]


def _items_of_array(array: Any) -> list[Any]:
    return _items(array.flat[:: max(1, array.size // ITEMS_MAX)] if array.shape else [array.item()])


CONTENTS: dict[str, Callable[[Any], Any]] = {
    "array.array": lambda array: array.tobytes(),
    "builtins.slice": repr,
    "_contextvars.ContextVar": lambda variable: _items([variable.get(None)]),
    **{
        f"_io.{name}": lambda file: file.tell() if file.readable() else None
        for name in ("TextIOWrapper", "BufferedReader", "BufferedRandom", "FileIO")
    },
    "sqlite3.Connection": lambda store: store.total_changes if _is_in_memory(store) else None,
    "_csv.reader": lambda reader: reader.line_num,
    "functools._lru_cache_wrapper": lambda cache: cache.cache_info().misses,
    "builtins.memoryview": lambda view: view.tobytes(),
    **{
        name: lambda mapping: _items(chain.from_iterable(mapping.items()))
        for name in (
            *("builtins.mappingproxy", "weakref.WeakKeyDictionary", "weakref.WeakValueDictionary"),
        )
    },
    "mmap.mmap": lambda file: file[:WHOLE_BYTES],
    "multiprocessing.shared_memory.SharedMemory": lambda memory: bytes(memory.buf[:WHOLE_BYTES]),
    "multiprocessing.managers.ValueProxy": lambda proxy: _items([proxy.value]),
    "multiprocessing.managers.ListProxy": lambda proxy: _items(proxy[:]),
    "multiprocessing.managers.DictProxy": lambda proxy: _items(chain.from_iterable(proxy.items())),
    **{
        f"multiprocessing.pool.{name}": lambda results: results._index - len(results._items)
        for name in ("IMapIterator", "IMapUnorderedIterator")
    },
    "_io.BytesIO": lambda file: file.getvalue(),
    "_io.StringIO": lambda file: file.getvalue(),
    **{
        f"queue.{name}": lambda queue: _items(queue.queue)
        for name in ("Queue", "LifoQueue", "PriorityQueue")
    },
}
"""Readers of ``reader_of`` by type; those of arrays stand there."""
PICKLED = frozenset({"numpy", "pandas"})
"""Packages whose other objects are read as they are pickled."""


class Local:
    """A part of a mark that means something in this process alone."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Local) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return ""


def _some(items: Any, marker: Marker) -> Iterator[Any]:
    """Yield the items that are compared: all of a short collection, or some, evenly spread."""
    size, left = len(items), max(1, marker._left)
    step = 1 if size <= left else -(-size // max(1, left // 2))
    yield from islice(items, 0, None, step)
    if step > 1:
        yield next(reversed(items))


def _digest(data: Any) -> bytes:
    return hashlib.blake2b(data, digest_size=8).digest()


def _version(tensor: Any) -> int:
    try:
        return int(tensor._version)
    except RuntimeError:  # an inference tensor counts nothing
        return 0


def _spread(flat: Any, library: Any) -> bytes:
    """Return some numbers of a large tensor, without a copy of it."""
    step = max(1, flat.numel() // SAMPLE)
    if flat.is_contiguous():
        some = flat.view(-1)[::step]
    else:
        at = library.arange(0, flat.numel(), step, device=flat.device)
        some = flat[library.unravel_index(at, flat.shape)]
    data: bytes = some.cpu().contiguous().view(library.uint8).numpy().tobytes()
    return data


def _sum_of(flat: Any, library: Any) -> Any:
    """Return a number that differs if any number of the tensor does, as far as a sum can tell."""
    if flat.device.type == "cpu":
        return zlib.crc32(flat.contiguous().view(-1).view(library.uint8).numpy())
    return float(flat.sum(dtype=library.float64 if flat.is_floating_point() else library.int64))
