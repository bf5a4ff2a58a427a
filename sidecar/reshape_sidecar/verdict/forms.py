"""Values of a script that are data: what they are, copies, and the way back.

Does: tells data (numbers, texts, tensors, arrays, generators and plain collections of them) from
other objects; restores a value in place where it can, so that what shares it sees the same. Works
with the PyTorch and NumPy that the script has imported, and imports neither.
"""

from __future__ import annotations

import dataclasses
import random
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from itertools import chain, islice
from types import MappingProxyType
from typing import Any

PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, bytearray})
SEQUENCES = (list, tuple, deque)
SETS = (set, frozenset)
MAPPINGS = (dict, OrderedDict, defaultdict, Counter)
VALUE_TYPES = frozenset(
    {
        *("torch.Size", "torch.dtype", "torch.device", "builtins.range", "uuid.UUID"),
        *("decimal.Decimal", "fractions.Fraction", "pathlib.PosixPath", "pathlib.PurePosixPath"),
        *("datetime.datetime", "datetime.date", "datetime.time", "datetime.timedelta"),
    }
)
"""Types whose values never change, and are written as they are."""
DEPTH_MAX = 8
ITEMS_MAX = 1000
"""Most items of a collection that a look compares; of a longer one so many, evenly spread."""
SUMMED_MAX = 1 << 16
"""Numbers of a tensor that ``sums`` takes."""
ITEMS_OF_FACTORY = "reshape: items of a defaultdict"
STATE_OF_GENERATOR = "reshape: state of a generator"
"""The only key of a dictionary that stands for such a value, whose own form has code in it."""
OBJECT, IDENTITY = "reshape: object ", "reshape: identity of "
"""Beginnings of keys that stand for an object of the model, or its identity, by its name."""
Names = Mapping[int, str]
"""Names of objects that each start makes again, by their identity."""
NAMELESS: Names = MappingProxyType({})


class NoData(TypeError):
    """A value is no data, or holds something that is none."""


def torch() -> Any:
    """Return the script's PyTorch; None if it has imported none."""
    return sys.modules.get("torch")


def is_tensor(value: Any) -> bool:
    """Return whether ``value`` is a tensor."""
    library = torch()
    return library is not None and isinstance(value, library.Tensor)


def is_module(value: Any) -> bool:
    """Return whether ``value`` is a model or a part of one."""
    library = torch()
    return library is not None and isinstance(value, library.nn.Module)


def tensors_of(part: Any) -> Iterator[tuple[str, Any]]:
    """Yield the weights and buffers of a part of a model, by name."""
    for key, tensor in chain(part._parameters.items(), part._buffers.items()):
        if tensor is not None:
            yield key, tensor


def is_loader(value: Any) -> bool:
    """Return whether ``value`` is a loader of PyTorch, or of a library that builds on it."""
    library = torch()
    return library is not None and isinstance(value, library.utils.data.DataLoader)


def is_array(value: Any) -> bool:
    """Return whether ``value`` is a NumPy array of numbers that can be written."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.ndarray):
        return False
    return bool(value.dtype.kind in "biufcSUmM" and value.flags.writeable)


def is_data(value: Any, names: Names = NAMELESS) -> bool:
    """Return whether a value is data; of a long collection so many items are asked as compared.

    ``names``: of objects that may be keys.
    """
    return _is_data(value, 0, [ITEMS_MAX], names)


def _is_data(value: Any, depth: int, left: list[int], names: Names) -> bool:
    """``left``: how many more items are asked."""
    left[0] -= 1
    kind = type(value)
    if left[0] < 0 or _is_leaf(value):
        return True
    if depth >= DEPTH_MAX:
        return False
    items: Iterable[Any]
    if kind in MAPPINGS:
        keys = [key for key in islice(value, ITEMS_MAX) if id(key) not in names]
        if any(is_tensor(key) for key in keys):
            return False  # the next start has other objects
        items = chain(keys, islice(value.values(), ITEMS_MAX))
    elif kind in SEQUENCES or kind in SETS or is_named_tuple(kind):
        items = islice(value, ITEMS_MAX)
    elif is_frozen(kind):
        items = fields_of(value).values()
    else:
        return False
    return all(_is_data(item, depth + 1, left, names) for item in items)


def _is_leaf(value: Any) -> bool:
    kind = type(value)
    if kind in PLAIN or is_tensor(value) or is_array(value) or is_generator(value):
        return True
    if isinstance(value, Enum):
        return True
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.generic, numpy.ndarray)):
        return bool(value.dtype.kind in "biufcSUmM")
    return f"{kind.__module__}.{kind.__qualname__}" in VALUE_TYPES


def sums(value: Any) -> tuple[float, float] | None:
    """Return sum and absolute sum of the numbers in data that are not whole; None without one.

    Of a long collection and of a large tensor some are taken, evenly spread.
    """
    found: list[float] = []
    absolute: list[float] = []
    _collect(value, 0, [ITEMS_MAX], found, absolute)
    return (sum(found), sum(absolute)) if found else None


def _collect(
    value: Any, depth: int, left: list[int], found: list[float], absolute: list[float]
) -> None:
    left[0] -= 1
    if left[0] < 0 or depth > DEPTH_MAX:
        return
    kind = type(value)
    items: Iterable[Any] = ()
    if kind is float:
        found.append(value)
        absolute.append(abs(value))
    elif (numbers := _fractions(value)) is not None:
        found.append(float(numbers.sum()))
        absolute.append(float(abs(numbers).sum()))
    elif kind in MAPPINGS:
        items = value.values()
    elif kind in SEQUENCES or is_named_tuple(kind):
        items = value
    elif is_frozen(kind):
        items = fields_of(value).values()
    for item in islice(items, ITEMS_MAX):
        _collect(item, depth + 1, left, found, absolute)


def _fractions(value: Any) -> Any:
    """Return numbers of a tensor or an array, as double ones; None if they are whole."""
    numpy = sys.modules.get("numpy")
    if is_tensor(value):
        if not value.is_floating_point() or not is_strided(value) or value.device.type == "meta":
            return None
        flat = value.detach().reshape(-1)
        return flat[:: max(1, len(flat) // SUMMED_MAX)].double()
    if numpy is None or not isinstance(value, (numpy.ndarray, numpy.generic)):
        return None
    flat = numpy.asarray(value).reshape(-1)
    if flat.dtype.kind != "f":
        return None
    return flat[:: max(1, len(flat) // SUMMED_MAX)].astype(float)


def is_frozen(kind: type) -> bool:
    """Return whether a class is a frozen dataclass, whose values are made whole."""
    parameters = getattr(kind, "__dataclass_params__", None)
    is_frozen = parameters is not None and parameters.frozen
    return is_frozen and all(field.init for field in dataclasses.fields(kind))


def fields_of(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def shape_of(value: Any) -> tuple[int, ...]:
    """Return the sides of a tensor or an array; none of a nested one, whose parts have theirs."""
    return () if getattr(value, "is_nested", False) else tuple(value.shape)


def is_strided(tensor: Any) -> bool:
    """Return whether a tensor holds its numbers side by side, and nothing else."""
    library = torch()
    return tensor.layout is library.strided and not (tensor.is_nested or tensor.is_quantized)


def is_generator(value: Any) -> bool:
    """Return whether ``value`` is a generator of random numbers."""
    library, numpy = torch(), sys.modules.get("numpy")
    return (
        isinstance(value, random.Random)
        or (library is not None and isinstance(value, library.Generator))
        or (
            numpy is not None
            and isinstance(value, (numpy.random.Generator, numpy.random.RandomState))
        )
    )


def process_generators() -> list[Any]:
    """Return the generators behind the functions of ``random`` and ``numpy.random``."""
    numpy = sys.modules.get("numpy")
    functions = [random.random] if numpy is None else [random.random, numpy.random.random]
    return [getattr(function, "__self__", None) for function in functions]


def generator_state(value: Any) -> Any:
    """Return the state of a generator."""
    if isinstance(value, random.Random):
        return value.getstate()
    if hasattr(value, "bit_generator"):
        return value.bit_generator.state
    return value.get_state()


def set_generator_state(value: Any, state: Any) -> None:
    """Let a generator go on from ``state``."""
    if isinstance(value, random.Random):
        value.setstate(state)
    elif hasattr(value, "bit_generator"):
        value.bit_generator.state = state
    else:
        value.set_state(state)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Tensors:
    """A module of the script: those of its tensors that are no weights of the model in training."""

    module: Any
    names: tuple[str, ...]

    def state_dict(self) -> dict[str, Any]:
        """Return the tensors."""
        state = self.module.state_dict()
        return {name: state[name] for name in self.names}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Copy the numbers of ``saved`` into the tensors. Raises NoData with the difference."""
        there = self.module.state_dict()
        for name, tensor in saved.items():
            if name not in there or there[name].shape != tensor.shape:
                raise NoData(f"{name} has another shape, or is not there")
            there[name].copy_(tensor)


def load(there: Any, saved: Any) -> None:
    """Let an object load its state; an optimizer keeps its groups, which one around it may share.

    Raises what its ``load_state_dict`` raises.
    """
    groups = getattr(there, "param_groups", None)
    there.load_state_dict(saved)
    if groups is not None:
        for group, loaded in zip(groups, there.param_groups, strict=True):
            group.update(loaded)
        there.param_groups = groups


# -- copies and the way back ----------------------------------------------------------------------


def copied(value: Any, names: Names = NAMELESS, depth: int = 0) -> Any:
    """Return data that a checkpoint holds: without code, and tensors on the processor.

    Objects in ``names`` that are keys, or whose identities are, become texts. Raises NoData.
    """
    kind = type(value)
    if is_generator(value):
        state = generator_state(value)
        return {STATE_OF_GENERATOR: state.cpu() if is_tensor(state) else state}
    if is_tensor(value):
        if value.is_nested and str(value.layout) == "torch.strided":
            raise NoData("a nested tensor")
        return value.detach().to("cpu", copy=True).resolve_conj().resolve_neg()
    if _is_leaf(value):
        return value.copy() if hasattr(value, "tobytes") and hasattr(value, "copy") else value
    if depth >= DEPTH_MAX:
        raise NoData(f"{kind.__name__} is nested deeper than {DEPTH_MAX} times")
    if kind in MAPPINGS:
        pairs = [
            (_copied_key(key, names, depth), copied(item, names, depth + 1))
            for key, item in value.items()
        ]
        if kind is defaultdict:
            return {ITEMS_OF_FACTORY: dict(pairs)}
        return {dict: dict, OrderedDict: OrderedDict, Counter: Counter}[kind](dict(pairs))
    if kind is deque:
        return deque((copied(item, names, depth + 1) for item in value), value.maxlen)
    if kind in (list, tuple, *SETS):
        return kind(copied(item, names, depth + 1) for item in value)
    if is_named_tuple(kind):
        return kind(*(copied(item, names, depth + 1) for item in value))
    if is_frozen(kind):
        return kind(**{key: copied(one, names, depth + 1) for key, one in fields_of(value).items()})
    raise NoData(f"{kind.__module__}.{kind.__qualname__}")


def _copied_key(key: Any, names: Names, depth: int) -> Any:
    if (name := names.get(id(key))) is not None:
        return OBJECT + name
    if type(key) is int and (name := names.get(key)) is not None:
        return IDENTITY + name
    return copied(key, names, depth + 1)


def with_objects(saved: Any, objects: Mapping[str, Any]) -> Any:
    """Return what ``copied`` returned, with the ``objects`` of this process as keys.

    Raises NoData if one is not there any more.
    """
    kind = type(saved)
    if kind in (dict, OrderedDict, Counter):
        pairs = [(_key(key, objects), with_objects(one, objects)) for key, one in saved.items()]
        return kind(dict(pairs))
    if kind in (list, tuple):
        return kind(with_objects(one, objects) for one in saved)
    return saved


def _key(key: Any, objects: Mapping[str, Any]) -> Any:
    if not isinstance(key, str) or not key.startswith((OBJECT, IDENTITY)):
        return key
    name = key.removeprefix(OBJECT).removeprefix(IDENTITY)
    if name not in objects:
        raise NoData(f"{name} is not there any more")
    return objects[name] if key.startswith(OBJECT) else id(objects[name])


def has_other_shape(there: Any, saved: Any) -> bool:
    """Return whether two tensors or arrays, or two of a list, have another shape."""
    if is_tensor(saved) or is_array(saved):
        return (is_tensor(there) or is_array(there)) and shape_of(there) != shape_of(saved)
    if not isinstance(saved, (list, tuple)) or not isinstance(there, (list, tuple)):
        return False
    return any(has_other_shape(one, item) for one, item in zip(there, saved, strict=False))


def has_length(
    value: Any, length: int | None, but: frozenset[tuple[int, ...]] = frozenset()
) -> bool:
    """Return whether one of the first two sides of a tensor, or of each in a list, has a length.

    ``but``: shapes that do not count.
    """
    if is_tensor(value) or is_array(value):
        return length in shape_of(value)[:2] and shape_of(value) not in but
    if not isinstance(value, (list, tuple)) or not value:
        return False
    return all(has_length(one, length, but) for one in value)


def put(there: Any, saved: Any, device: Any = None) -> tuple[bool, Any]:
    """Give the object ``there`` the value that ``copied`` returned.

    Returns whether that was done in place, and the value to bind otherwise. ``device``: of tensors
    that were on a GPU, where they take no tensor's place.
    """
    if _stands_for(saved, STATE_OF_GENERATOR):
        if not is_generator(there):
            raise NoData("a generator that is not there any more")
        set_generator_state(there, saved[STATE_OF_GENERATOR])
        return True, there
    if is_tensor(saved):
        return _put_tensor(there, saved, device)
    if is_array(there) and is_array(saved):
        if there.shape == saved.shape and there.dtype == saved.dtype:
            there[...] = saved
            return True, there
        return False, saved.copy()
    if type(saved) in MAPPINGS:
        return _put_mapping(there, saved, device)
    if type(saved) in (list, deque):
        return _put_sequence(there, saved, device)
    if type(saved) is set and type(there) is set:
        there.clear()
        there.update(saved)
        return True, there
    if type(saved) is bytearray and type(there) is bytearray:
        there[:] = saved
        return True, there
    if isinstance(saved, tuple):
        return False, _bound_tuple(there, saved, device)
    return False, saved


def _stands_for(saved: Any, key: str) -> bool:
    return type(saved) is dict and len(saved) == 1 and key in saved


def _put_tensor(there: Any, saved: Any, device: Any) -> tuple[bool, Any]:
    library = torch()
    fits = is_tensor(there) and is_strided(there) and is_strided(saved)
    if fits and there.shape == saved.shape and there.dtype == saved.dtype:
        if there.is_leaf or not there.requires_grad:
            with library.no_grad():
                there.detach().copy_(saved)
            return True, there
        return False, saved.to(there.device, copy=True)
    where = there.device if is_tensor(there) else device
    return False, saved.clone() if where is None else saved.to(where, copy=True)


def _put_mapping(there: Any, saved: Any, device: Any) -> tuple[bool, Any]:
    is_factory = _stands_for(saved, ITEMS_OF_FACTORY)
    items = saved[ITEMS_OF_FACTORY] if is_factory else saved
    if type(there) not in MAPPINGS or (type(there) is defaultdict) != is_factory:
        if is_factory:
            raise NoData("a defaultdict that is not there any more")
        return False, type(saved)({key: put(None, item, device)[1] for key, item in items.items()})
    for key in [key for key in there if key not in items]:
        del there[key]
    for key, item in items.items():
        old = there[key] if key in there or (is_factory and there.default_factory) else None
        in_place, value = put(old, item, device)
        if not in_place:
            there[key] = value
    if type(there) in (dict, OrderedDict) and not _are_same(there, items):
        ordered = [(key, there[key]) for key in items]
        there.clear()
        there.update(ordered)
    return True, there


def _are_same(there: Any, keys: Any) -> bool:
    """Return whether the keys of two dictionaries are in the same order."""
    return all(
        one is other or (not is_tensor(one) and one == other)
        for one, other in zip(there, keys, strict=True)
    )


def _put_sequence(there: Any, saved: Any, device: Any) -> tuple[bool, Any]:
    same = type(there) is type(saved) and getattr(there, "maxlen", None) == getattr(
        saved, "maxlen", None
    )
    old = list(there) if same else []
    values = []
    for number, item in enumerate(saved):
        values.append(put(old[number] if number < len(old) else None, item, device)[1])
    if not same:
        return False, values if type(saved) is list else deque(values, saved.maxlen)
    there.clear()
    there.extend(values)
    return True, there


def _bound_tuple(there: Any, saved: Any, device: Any) -> Any:
    old = there if type(there) is type(saved) and len(there) == len(saved) else [None] * len(saved)
    values = [put(one, item, device)[1] for one, item in zip(old, saved, strict=True)]
    return type(saved)(*values) if is_named_tuple(type(saved)) else tuple(values)
