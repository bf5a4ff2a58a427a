"""Python values and arrays of a training state to one JSON text and one array file, and back.

Does: encodes None, bool, int, float, str, bytes, list, tuple, set, dict, those of ``collections``,
``bytearray``, ``array.array``, NumPy arrays and scalars, eager tensors, and functions of Keras and
NumPy by name. Any other value has no exact form (``Unkeepable``). Nothing is pickled, so reading a
state runs no code of it.
"""

from __future__ import annotations

import array
import base64
import contextlib
import importlib
import json
import math
import mmap
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

STATE_FILE = "state.json"
ARRAYS_FILE = "arrays.bin"
FORMAT_VERSION = 1
FUNCTION_ROOTS = ("keras", "numpy")
"""Packages whose functions are stored by name."""
FACTORIES = {kind.__name__: kind for kind in (bool, int, float, str, list, dict, set)}
"""Factories that a ``defaultdict`` may have; any other is code."""


class Unkeepable(TypeError):
    """A value has no exact form in a state."""


class Writer:
    """Collects arrays while values are encoded, then writes both files."""

    def __init__(self) -> None:
        self._arrays: list[Any] = []

    def encode(self, value: Any) -> Any:
        """Return the JSON form of ``value`` and collect its arrays. Raises Unkeepable."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"$float": repr(value)}
        if type(value) is list:
            return [self.encode(item) for item in value]
        if type(value) in (tuple, set, frozenset):
            return {f"${type(value).__name__}": [self.encode(item) for item in value]}
        if type(value) in (bytes, bytearray):
            return {f"${type(value).__name__}": value.hex()}
        if type(value) is array.array:
            return {"$numbers": [value.typecode, value.tobytes().hex()]}
        if type(value) is dict:
            if all(type(key) is str and not key.startswith("$") for key in value):
                return {key: self.encode(item) for key, item in value.items()}
            return {"$dict": [[self.encode(k), self.encode(v)] for k, v in value.items()]}
        if type(value) in (OrderedDict, Counter, defaultdict, deque):
            return self._encode_collection(value)
        if isinstance(value, (types.FunctionType, types.BuiltinFunctionType)) or _is_ufunc(value):
            return {"$function": _function_name(value)}
        return self._encode_array(value)

    def _encode_collection(self, value: Any) -> Any:
        if type(value) is deque:
            return {"$deque": [value.maxlen, self.encode(list(value))]}
        pairs = [[self.encode(key), self.encode(item)] for key, item in value.items()]
        if type(value) is not defaultdict:
            return {f"${type(value).__name__}": pairs}
        factory = value.default_factory
        name = getattr(factory, "__name__", None)
        if factory is not None and FACTORIES.get(name or "") is not factory:
            raise Unkeepable(f"defaultdict of {name}")
        return {"$defaultdict": [name, pairs]}

    def _encode_array(self, value: Any) -> Any:
        import numpy as np

        if isinstance(value, np.generic) and value.dtype.kind in "biufc":
            return {"$scalar": self._add(np.asarray(value))}
        if isinstance(value, np.ndarray) and value.dtype.kind in "biufcV" and not value.dtype.names:
            return {"$array": self._add(value)}
        if type(value).__name__ == "EagerTensor" and hasattr(value, "numpy"):
            return self._encode_array(value.numpy())
        raise Unkeepable(f"{type(value).__module__}.{type(value).__qualname__}")

    def _add(self, array: Any) -> int:
        self._arrays.append(array)
        return len(self._arrays) - 1

    def write(self, folder: Path, document: dict[str, Any]) -> None:
        """Write ``document`` (encoded values only) and the arrays into ``folder``."""
        import numpy as np

        index = []
        offset = 0
        with open(folder / ARRAYS_FILE, "wb") as file:
            for array in self._arrays:
                data = np.ascontiguousarray(array)
                file.write(memoryview(data.reshape(-1).view(np.uint8)))
                index.append([str(array.dtype), list(array.shape), offset])
                offset += data.nbytes
        whole = {"version": FORMAT_VERSION, "arrays": index, **document}
        (folder / STATE_FILE).write_text(json.dumps(whole, allow_nan=False), encoding="utf-8")


class Reader:
    """A state that Writer has written; the arrays are read on first use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.document: dict[str, Any] = json.loads((folder / STATE_FILE).read_bytes())
        if self.document.get("version") != FORMAT_VERSION:
            raise ValueError(
                f"{folder}: the checkpoint has format {self.document.get('version')}, and this "
                f"version of Reshape reads format {FORMAT_VERSION} only; finish the job with the "
                "version that wrote it, or train from the start in an empty `checkpoints` folder."
            )
        self._bytes: Any = None

    def load(self) -> None:
        """Map the arrays into memory, so that the files may be removed."""
        with open(self._folder / ARRAYS_FILE, "rb") as file:
            self._bytes = _mapped(file)

    def release(self) -> None:
        """Free the memory of the arrays."""
        self._bytes = None

    def decode(self, value: Any) -> Any:
        """Return the value that ``Writer.encode`` encoded."""
        if isinstance(value, list):
            return [self.decode(item) for item in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            ((key, inner),) = value.items()
            if key.startswith("$"):
                return self._special(key, inner)
        return {key: self.decode(item) for key, item in value.items()}

    def _special(self, key: str, inner: Any) -> Any:
        if key == "$float":
            return float(inner)
        if key == "$tuple":
            return tuple(self.decode(item) for item in inner)
        if key in ("$set", "$frozenset"):
            return (set if key == "$set" else frozenset)(self.decode(item) for item in inner)
        if key in ("$bytes", "$bytearray"):
            return (bytes if key == "$bytes" else bytearray).fromhex(inner)
        if key == "$numbers":
            return array.array(inner[0], bytes.fromhex(inner[1]))
        if key == "$dict":
            return dict(self._pairs(inner))
        if key == "$deque":
            return deque(self.decode(inner[1]), inner[0])
        if key in ("$OrderedDict", "$Counter"):
            return (OrderedDict if key == "$OrderedDict" else Counter)(dict(self._pairs(inner)))
        if key == "$defaultdict":
            return defaultdict(FACTORIES.get(inner[0]), self._pairs(inner[1]))
        if key == "$function":
            return _function(inner)
        if key == "$scalar":
            return self._array(inner)[()]
        if key == "$array":
            return self._array(inner)
        raise ValueError(f"{self._folder}: unknown value {key}")

    def _pairs(self, inner: list[Any]) -> Iterator[tuple[Any, Any]]:
        return ((self.decode(key), self.decode(item)) for key, item in inner)

    def _array(self, number: int) -> Any:
        import numpy as np

        if self._bytes is None:
            self.load()
        name, shape, offset = self.document["arrays"][number]
        kind = _dtype(name)
        count = math.prod(shape)
        return np.frombuffer(self._bytes, kind, count, offset).reshape(shape).copy()


def _mapped(file: BinaryIO) -> Any:
    """Return the bytes of ``file`` without a copy, or a copy where it cannot be mapped."""
    try:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):  # a file system without maps; an empty file
        return file.read()
    with contextlib.suppress(OSError):
        content.madvise(mmap.MADV_WILLNEED)
    return content


INLINE_BYTES_MAX = 32 << 20
"""Most bytes of arrays in one value that stands in the JSON text."""


class Inline(Writer):
    """Encodes arrays into the JSON values themselves, up to a number of bytes."""

    def __init__(self, bytes_max: int = INLINE_BYTES_MAX) -> None:
        super().__init__()
        self._left_bytes = bytes_max

    def _add(self, array: Any) -> Any:
        self._left_bytes -= array.nbytes
        if self._left_bytes < 0:
            raise Unkeepable("too many bytes")
        return self._form(array)

    def _form(self, array: Any) -> Any:
        data = base64.b64encode(array.tobytes()).decode()
        return [str(array.dtype), list(array.shape), data]


class Trial(Inline):
    """Tells whether values have an exact form, without a copy of their arrays."""

    def _form(self, array: Any) -> Any:
        return None


class InlineReader(Reader):
    """Decodes what ``Inline`` encoded."""

    def __init__(self) -> None:
        pass

    def _array(self, number: Any) -> Any:
        import numpy as np

        kind, shape, data = number
        return np.frombuffer(base64.b64decode(data), kind).reshape(shape).copy()


def fill(there: Any, value: Any) -> bool:
    """Give a collection the content of another; False if the two are no such collections.

    The object stays: the script may hold it by several names.
    """
    if type(there) is not type(value):
        return False
    if isinstance(there, (list, bytearray, array.array)):
        there[:] = value
    elif isinstance(there, (dict, set)):
        there.clear()
        there.update(value)
    elif isinstance(there, deque) and there.maxlen == value.maxlen:
        there.clear()
        there.extend(value)
    else:
        return False
    return True


def _dtype(name: str) -> Any:
    import numpy as np

    try:
        return np.dtype(name)
    except TypeError:
        # bfloat16 and the float8 kinds come with the framework.
        return np.dtype(getattr(importlib.import_module("ml_dtypes"), name))


def _is_ufunc(value: Any) -> bool:
    return type(value).__name__ == "ufunc" and type(value).__module__ == "numpy"


def _function_name(value: Any) -> str:
    module = "numpy" if _is_ufunc(value) else (getattr(value, "__module__", None) or "")
    name = str(getattr(value, "__qualname__", None) or getattr(value, "__name__", ""))
    if module.split(".")[0] not in FUNCTION_ROOTS or "<" in name or "." in name:
        raise Unkeepable(f"function {module}.{name}")
    return f"{module}:{name}"


def _function(text: str) -> Any:
    module, _, name = text.partition(":")
    if module.split(".")[0] not in FUNCTION_ROOTS:
        raise ValueError(f"function {text} is not of {' or '.join(FUNCTION_ROOTS)}")
    return getattr(importlib.import_module(module), name)
