"""A dataclass as a class whose methods stand in the source.

Does: writes the constructor, comparison, hash, text and changed copy that ``dataclasses`` would
make at run time, where no compiler sees them. Never: changes what a value does, but for what
docs/decisions/0060-the-deciding-code-can-be-compiled.md says. State: none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from native import copies
from native.fields import Field, Value, field_nodes, read
from native.source import Source


def write(
    source: Source, cls: ast.ClassDef, decorator: ast.expr, copied: Iterable[copies.Names] = ()
) -> None:
    """Translate one dataclass. ``copied``: which fields are replaced together somewhere. Raises
    Refused."""
    value = read(source, cls, decorator)
    source.put_decorator(decorator, "")
    for node, field in zip(field_nodes(cls), value.fields, strict=True):
        if node.value is not None:
            source.put(node, f"{field.name}: {field.kind}")
    parts = [_init(value)]
    if value.eq and "__eq__" not in value.has:
        parts.append(_eq(value))
    if value.eq and value.frozen and "__hash__" not in value.has:
        parts.append(_hash(value))
    if "__repr__" not in value.has:
        parts.append(_repr(value))
    parts += [_replace(value), *_copies(value, copied), _reduce(value)]
    names = "".join(f"{field.name!r}, " for field in value.given)
    body = [f"__match_args__: _Final = ({names.rstrip()})", *parts]
    indented = "".join(f"\n{_indented(part)}\n" for part in body)
    source.add_after(cls, f"{indented}\n\n{_dressing(value)}")


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.splitlines())


def _init(value: Value) -> str:
    lines = ["def __init__(", "    self,"]
    lines += [f"    {_parameter(field)}," for field in value.given]
    lines.append(") -> None:")
    body = [f"    self.{field.name} = {_start(field)}" for field in value.fields if _starts(field)]
    if "__post_init__" in value.has:
        body.append("    self.__post_init__()")
    return "\n".join([*lines, *(body or ["    pass"])])


def _parameter(field: Field) -> str:
    if field.made is not None:
        return f"{field.name}: ({field.kind}) | None = None"
    default = "" if field.default is None else f" = {field.default}"
    return f"{field.name}: {field.kind}{default}"


def _starts(field: Field) -> bool:
    """Whether the constructor sets it; of the others, ``__post_init__`` may."""
    return field.init or field.default is not None or field.made is not None


def _start(field: Field) -> str:
    if not field.init:
        return field.made or f"{field.default}"
    if field.made is not None:
        return f"{field.made} if {field.name} is None else {field.name}"
    return field.name


def _eq(value: Value) -> str:
    same = " and ".join(f"self.{field.name} == other.{field.name}" for field in value.compared)
    return (
        "def __eq__(self, other: object) -> bool:\n"
        "    if self is other:\n"
        "        return True\n"
        f"    if not isinstance(other, {value.name}):\n"
        "        return NotImplemented\n"
        f"    return {same or 'True'}"
    )


def _hash(value: Value) -> str:
    fields = "".join(f"self.{field.name}, " for field in value.compared)
    return f"def __hash__(self) -> int:\n    return hash(({fields.rstrip()}))"


def _repr(value: Value) -> str:
    shown = ", ".join(
        f"{field.name}={{self.{field.name}!r}}" for field in value.fields if field.repr
    )
    return f"def __repr__(self) -> str:\n    return f'{value.name}({shown})'"


def _replace(value: Value) -> str:
    head = f"def __replace__(self, **changes: _Any) -> {value.name}:\n"
    if "__post_init__" in value.has:
        fields = ", ".join(f"{field.name!r}: self.{field.name}" for field in value.given)
        return (
            f"{head}"
            f"    fields: dict[str, _Any] = {{{fields}}}\n"
            f"    return {value.name}(**(fields | changes))"
        )
    return (
        f"{head}"
        f"    copy = {_anew(value)}\n"
        f"    _dressing.changed(copy, _{value.name}_given, changes)\n"
        "    return copy"
    )


def _copies(value: Value, copied: Iterable[copies.Names]) -> list[str]:
    """A method for each set of fields that the class has."""
    given = {field.name for field in value.given}
    return [_copy(value, names) for names in sorted(copied) if given.issuperset(names)]


def _copy(value: Value, names: copies.Names) -> str:
    other = "".join(f", {field.name}: {field.kind}" for field in value.given if field.name in names)
    fields = [field.name if field.name in names else f"self.{field.name}" for field in value.given]
    return (
        f"def {copies.method(names)}(self, *{other}) -> {value.name}:\n"
        f"    return {value.name}({', '.join(fields)})"
    )


def _reduce(value: Value) -> str:
    fields = "".join(f"self.{field.name}, " for field in value.given)
    return f"def __reduce__(self) -> _Any:\n    return {value.name}, ({fields.rstrip()})"


def _anew(value: Value) -> str:
    return f"{value.name}({', '.join(f'self.{field.name}' for field in value.given)})"


def _dressing(value: Value) -> str:
    """The statement below the class that tells the standard library of it."""
    entries = []
    for field in value.fields:
        said = "" if field.said is None else f", {field.said}"
        entries.append(f"        ({field.name!r}, {field.kind!r}{said}),\n")
    listed = f"[\n{''.join(entries)}    ]" if entries else "[]"
    return (
        f"_dressing.dressed(\n    {value.name},\n    {listed},\n    frozen={value.frozen},\n)\n"
        f"_{value.name}_given: _Final[frozenset[str]] = frozenset({value.name}.__match_args__)\n"
    )
