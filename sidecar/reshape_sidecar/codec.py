"""Frozen dataclasses to JSON and back, by their type hints; standard library only.

Does: one strict codec for all values that cross a process border (wire values, log records, launch
specs). A string that should be a number, or an unknown field, is an error.

Supported: dataclasses, StrEnum, NewType, bool, int, float, str, None, ``tuple[T, ...]``,
fixed ``tuple[A, B]``, unions with None, and unions of dataclasses (told apart by the key ``type``,
which holds the tag). The tag of a class is in its package's ``tags.py``: a class may be renamed or
moved, its tag stays.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from reshape_sidecar.tags import TAGS

T = TypeVar("T")
Decoder = Callable[[Any, str], Any]
WHOLE_MAX = (1 << 63) - 1
"""Largest whole number: no store takes a larger one, and a quotient of larger ones may overflow."""


class CodecError(ValueError):
    """A value does not fit its type; ``path`` says where, ``message`` why and the remedy."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path or 'document'}: {message}")
        self.path = path
        self.message = message


class UnknownTag(CodecError):
    """The value of a union has a ``tag`` that none of the union's classes has."""

    def __init__(self, path: str, tag: object, known: str) -> None:
        super().__init__(path, f"type {_short(tag)} is none of {known}")
        self.tag = tag


def register(package: str, table: Mapping[str, str]) -> None:
    """Register the tags of a package, each for a ``module:Class`` within it.

    A package calls this from its ``__init__.py``, which runs before any of its classes exists.
    """
    for tag, name in table.items():
        _tags[f"{package}.{name}"] = tag


def tag_of(cls: type) -> str:
    """Return the tag of a dataclass. Raises TypeError, with the remedy, if it has none."""
    name = f"{cls.__module__}:{cls.__qualname__}"
    if name not in _tags:
        package = cls.__module__.partition(".")[0]
        raise TypeError(
            f"{name} has no tag, so it cannot be stored or sent; remedy: add it to TAGS in "
            f"{package}/tags.py (a class that was renamed or moved keeps its old tag)"
        )
    return _tags[name]


def to_value(obj: Any) -> Any:
    """Return ``obj`` as a plain JSON value (dict, list, str, int, float, bool, None).

    Dataclasses become objects with their tag under ``type``; fields that equal their default are
    left out, so that new fields do not change old documents. Raises CodecError; TypeError for a
    dataclass without a tag.
    """
    kind = type(obj)
    if kind in _AS_IS:
        return obj
    if kind is tuple:
        return [to_value(item) for item in obj]
    if isinstance(obj, int):
        return obj
    if isinstance(obj, float):
        if not math.isfinite(obj):
            raise CodecError("", f"{obj} is not a finite number")
        return obj
    if isinstance(obj, enum.Enum):
        return obj.value
    if isinstance(obj, str):
        return str(obj)
    if isinstance(obj, (tuple, list)):
        return [to_value(item) for item in obj]
    if dataclasses.is_dataclass(kind):
        tag, fields = _form(kind)
        out: dict[str, Any] = {"type": tag}
        for name, default in fields:
            value = getattr(obj, name)
            if value is not default and (default is _REQUIRED or value != default):
                out[name] = to_value(value)
        return out
    raise CodecError("", f"{kind.__name__} cannot be written as JSON")


def dumps(obj: Any) -> str:
    """Return canonical JSON of ``obj``: sorted keys, no spaces; equal values, equal bytes."""
    return _ENCODER.encode(to_value(obj))


def from_value(kind: Any, value: Any, path: str = "") -> Any:
    """Return an instance of ``kind`` (a class, union or tuple type) from a plain JSON value.

    Raises CodecError with the path of the first thing that does not fit.
    """
    return _decoder(kind)(value, path)


def loads(kind: type[T], text: str | bytes) -> T:
    """Return an instance of ``kind`` from JSON text; raises CodecError, also for invalid JSON."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CodecError("", f"not valid JSON ({error})") from None
    return typing.cast(T, from_value(kind, value))


_REQUIRED = object()
_AS_IS = frozenset({type(None), bool, int, str})
"""Types whose values JSON has as they are."""
_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)
_tags: dict[str, str] = {}


@cache
def _form(cls: type) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """Return the tag of a dataclass, and its fields with their defaults."""
    fields = []
    for field in dataclasses.fields(cls):
        if field.default is not dataclasses.MISSING:
            default: Any = field.default
        elif field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        else:
            default = _REQUIRED
        fields.append((field.name, default))
    return tag_of(cls), tuple(fields)


@cache
def _decoder(kind: Any) -> Decoder:
    if isinstance(kind, typing.NewType):
        return _decoder(kind.__supertype__)
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _union(typing.get_args(kind))
    if origin is tuple:
        return _tuple(typing.get_args(kind))
    if kind in _SCALARS:
        return _scalar(kind)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _enum(kind)
    if dataclasses.is_dataclass(kind):
        return _dataclass(typing.cast(type, kind))
    raise TypeError(f"no decoder for {kind!r}")


_SCALARS = {
    bool: "true or false",
    int: "a whole number of 64 bits",
    float: "a number",
    str: "a string",
}


def _scalar(kind: Any) -> Decoder:
    def decode(value: Any, path: str) -> Any:
        if type(value) is int and kind in (int, float) and abs(value) <= WHOLE_MAX:
            return kind(value)
        if type(value) is kind and kind is not int and (kind is not float or math.isfinite(value)):
            return value
        raise CodecError(path, f"{_short(value)} is not {_SCALARS[kind]}")

    return decode


def _enum(kind: type[enum.Enum]) -> Decoder:
    members = {member.value: member for member in kind}

    def decode(value: Any, path: str) -> Any:
        if isinstance(value, str) and value in members:
            return members[value]
        raise CodecError(path, f"{_short(value)} is none of {', '.join(sorted(members))}")

    return decode


def _tuple(args: tuple[Any, ...]) -> Decoder:
    if len(args) == 2 and args[1] is Ellipsis:
        item = _decoder(args[0])

        def decode(value: Any, path: str) -> Any:
            if not isinstance(value, (list, tuple)):
                raise CodecError(path, f"{_short(value)} is not a list")
            return tuple(item(entry, f"{path}[{i}]") for i, entry in enumerate(value))

        return decode
    parts = [_decoder(arg) for arg in args]

    def decode_fixed(value: Any, path: str) -> Any:
        if not isinstance(value, (list, tuple)) or len(value) != len(parts):
            raise CodecError(path, f"{_short(value)} is not a list of {len(parts)}")
        return tuple(
            part(entry, f"{path}[{i}]")
            for i, (part, entry) in enumerate(zip(parts, value, strict=True))
        )

    return decode_fixed


def _union(args: tuple[Any, ...]) -> Decoder:
    optional = type(None) in args
    kinds = [arg for arg in args if arg is not type(None)]
    if len(kinds) == 1:
        inner = _decoder(kinds[0])
        return lambda value, path: None if value is None else inner(value, path)
    by_tag = {tag_of(kind): _decoder(kind) for kind in kinds}
    if len(by_tag) < len(kinds):
        raise TypeError(f"two of {kinds} have one tag; remedy: give the newer class another")
    known = ", ".join(sorted(by_tag))

    def decode(value: Any, path: str) -> Any:
        if value is None and optional:
            return None
        tag = value.get("type") if isinstance(value, dict) else None
        if not isinstance(tag, str) or tag not in by_tag:
            raise UnknownTag(path, tag, known)
        return by_tag[tag](value, path)

    return decode


def _dataclass(cls: type) -> Decoder:
    hints = typing.get_type_hints(cls)
    tag, defaults = _form(cls)
    fields = {name: (default, _decoder(hints[name])) for name, default in defaults}
    required = [name for name, (default, _) in fields.items() if default is _REQUIRED]

    def decode(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise CodecError(path, f"{_short(value)} is not an object")
        prefix = f"{path}." if path else ""
        arguments: dict[str, Any] = {}
        for name, raw in value.items():
            if name == "type" and "type" not in fields:
                if raw != tag:
                    raise UnknownTag(f"{prefix}type", raw, tag)
            elif name in fields:
                arguments[name] = fields[name][1](raw, f"{prefix}{name}")
            else:
                raise CodecError(f"{prefix}{name}", "unknown field")
        for name in required:
            if name not in arguments:
                raise CodecError(f"{prefix}{name}", "is missing")
        try:
            return cls(**arguments)
        except CodecError:
            raise
        except ValueError as error:
            raise CodecError(path, str(error)) from None

    return decode


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


register(__name__.partition(".")[0], TAGS)
