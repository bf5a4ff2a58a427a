"""Says of every dataclass of some modules what it is and what it does, as lines of text.

    python tests/unit/native/portrait.py MODULE...

Does: makes values of simple arguments, by their types, and shows fields, signature, text, hash,
comparisons, changed copies, and the way through the codec and through a pickle. The lines are the
same for a translated module, compiled or not. Never: knows one of the classes. State: none.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import pickle
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any

from reshape_sidecar import codec

SCALARS: dict[Any, tuple[Any, Any]] = {
    bool: (True, False),
    int: (1, 2),
    float: (0.25, 0.5),
    str: ("a", "b"),
}


class NoSample(Exception):
    """No simple value has this type."""


def sample(kind: Any, which: int) -> Any:
    """A value of a type; another one for another ``which`` where there is one."""
    if isinstance(kind, typing.NewType):
        return sample(kind.__supertype__, which)
    if kind in SCALARS:
        return SCALARS[kind][which]
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return sample(next(entry for entry in inner if entry is not type(None)), which)
    if origin is tuple:
        return tuple(sample(entry, which) for entry in inner if entry is not Ellipsis)
    if origin in (list, set, frozenset):
        return origin([sample(inner[0], which)])
    if origin is dict:
        return {sample(inner[0], which): sample(inner[1], which)}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return list(kind)[-which]
    if dataclasses.is_dataclass(kind):
        return made(kind, which)
    raise NoSample(str(kind))


def hints(kind: Any) -> dict[str, Any]:
    """The types of a class's fields. Raises NoSample."""
    try:
        return typing.get_type_hints(kind)
    except NameError as error:
        raise NoSample(str(error)) from None


def made(kind: Any, which: int) -> Any:
    """A value with every argument given."""
    known = hints(kind)
    given = [entry.name for entry in dataclasses.fields(kind) if entry.init]
    return kind(**{name: sample(known[name], which) for name in given})


def shown(default: object) -> str:
    """A default, without an address."""
    if default is dataclasses.MISSING:
        return "none"
    if callable(default):
        return default.__name__ if isinstance(default, type) else "a function"
    return repr(default)


def portrait(kind: Any) -> Iterator[str]:
    """Lines about one class."""
    for entry in dataclasses.fields(kind):
        said = (shown(entry.default), shown(entry.default_factory))
        flags = (entry.init, entry.repr, entry.compare, entry.hash, entry.kw_only)
        yield f"field {entry.name}: {entry.type} = {said} {flags}"
    yield f"made by {inspect.signature(kind)}, matched by {kind.__match_args__}"
    try:
        one, same, other = made(kind, 0), made(kind, 0), made(kind, 1)
    except NoSample as error:
        yield f"no sample of {error}"
        return
    yield f"value {one!r}"
    yield f"same {one == same}, other {one == other}, itself {one == one}, nothing {one == 0}"
    yield f"hash {hash(one)}" if can_hash(one) else "no hash"
    for entry in dataclasses.fields(kind):
        if entry.init:
            changed = dataclasses.replace(one, **{entry.name: getattr(other, entry.name)})
            yield f"changed {entry.name}: {changed!r} {changed == one}"
    yield f"pickled {pickle.loads(pickle.dumps(one))!r}"
    try:
        text = codec.dumps(one)
        yield f"{text} {codec.loads(kind, text)!r}"
    except (codec.CodecError, TypeError) as error:
        yield f"{type(error).__name__}: {error}"


def can_hash(value: object) -> bool:
    """Whether its hash follows from its fields."""
    return type(value).__hash__ not in (None, object.__hash__) and not mutable(value)


def mutable(value: object) -> bool:
    """Whether a field has no hash."""
    try:
        hash(value)
    except TypeError:
        return True
    return False


def main() -> None:
    """Print the portraits, in the order of the classes' names."""
    for name in sys.argv[1:]:
        module = importlib.import_module(name)
        kinds = (value for _, value in sorted(vars(module).items()) if isinstance(value, type))
        for kind in kinds:
            if dataclasses.is_dataclass(kind) and kind.__module__ == name:
                print(f"class {name}.{kind.__qualname__}")
                for line in portrait(kind):
                    print("   ", line)


if __name__ == "__main__":
    main()
