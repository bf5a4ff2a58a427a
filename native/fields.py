"""What a dataclass says of itself, read off its source.

Does: reads the decorator's options and each field, and refuses what is not translated. Never:
changes the source. State: none.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from native.source import Source, may_be_none, methods, named, names_in

OPTIONS = ("frozen", "slots", "eq")
FIELD_OPTIONS = ("default", "default_factory", "init", "compare", "repr")
NO_FIELDS = {"ClassVar", "InitVar", "KW_ONLY", "Final"}
MADE = {
    *("__init__", "__match_args__", "__replace__", "__reduce__", "__setstate__"),
    *("__setattr__", "__delattr__"),
}
"""What the translation writes itself."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field. ``made``: how its value is made where none is given, as text."""

    name: str
    kind: str
    """Its annotation."""
    said: str | None = None
    """Its default, or the ``field`` that tells of it."""
    default: str | None = None
    made: str | None = None
    init: bool = True
    compare: bool = True
    repr: bool = True


@dataclass(frozen=True, slots=True)
class Value:
    """A dataclass: its options, its fields, and the methods that it has."""

    name: str
    frozen: bool
    eq: bool
    fields: tuple[Field, ...]
    has: frozenset[str]

    @property
    def given(self) -> tuple[Field, ...]:
        """The fields that its constructor takes."""
        return tuple(field for field in self.fields if field.init)

    @property
    def compared(self) -> tuple[Field, ...]:
        """The fields by which it is equal to another."""
        return tuple(field for field in self.fields if field.compare)


def decorator_of(cls: ast.ClassDef) -> ast.expr | None:
    """What makes the class a dataclass; None: it is none."""
    found = [entry for entry in cls.decorator_list if named(entry) == "dataclass"]
    return found[0] if found else None


def read(source: Source, cls: ast.ClassDef, decorator: ast.expr) -> Value:
    """What a dataclass says of itself. Raises Refused."""
    options = _options(source, decorator)
    if cls.bases or cls.keywords:
        source.refuse(cls, f"{cls.name} is a dataclass with bases", "give it none")
    if len(cls.decorator_list) > 1:
        source.refuse(cls, f"{cls.name} has another decorator", "leave @dataclass alone there")
    own = set(methods(cls)) & MADE
    if own:
        source.refuse(cls, f"{cls.name} has {', '.join(sorted(own))}", "the translation writes it")
    entries = field_nodes(cls)
    fields = tuple(_field(source, entry) for entry in entries)
    taken = {field.name for field in fields}
    for entry in entries:
        if names_in(entry.value) & taken:
            source.refuse(entry, "a default has the name of a field", "give the field another")
    frozen, eq = options.get("frozen", False), options.get("eq", True)
    return Value(cls.name, frozen, eq, fields, frozenset(methods(cls)))


def field_nodes(cls: ast.ClassDef) -> list[ast.AnnAssign]:
    """The statements that are fields."""
    return [node for node in cls.body if isinstance(node, ast.AnnAssign)]


def _options(source: Source, decorator: ast.expr) -> dict[str, bool]:
    if not isinstance(decorator, ast.Call):
        return {}
    found = {}
    for keyword in decorator.keywords:
        if keyword.arg not in OPTIONS:
            what = f"dataclass({keyword.arg or '**'}=...) is not translated"
            source.refuse(decorator, what, f"use {', '.join(OPTIONS)} alone")
        found[keyword.arg] = _truth(source, keyword)
    return found


def _truth(source: Source, keyword: ast.keyword) -> bool:
    value = keyword.value
    if not isinstance(value, ast.Constant) or not isinstance(value.value, bool):
        source.refuse(value, f"{keyword.arg}= is computed", "write True or False")
    return value.value


def _field(source: Source, node: ast.AnnAssign) -> Field:
    if not isinstance(node.target, ast.Name):
        source.refuse(node, "no plain name is annotated", "annotate a name")
    kind = " ".join(source.of(node.annotation).split())
    if names_in(node.annotation) & NO_FIELDS:
        source.refuse(node, f"{kind} is not translated", "make it a field, or a name of the module")
    if isinstance(node.annotation, ast.Constant):
        source.refuse(node, f"the annotation {kind} is a text", "leave the quotes out")
    name, value = node.target.id, node.value
    if value is None:
        return Field(name, kind)
    said = source.of(value)
    if not (isinstance(value, ast.Call) and named(value.func) == "field"):
        return Field(name, kind, said, default=said)
    if not isinstance(value.func, ast.Name):
        source.refuse(value, f"{source.of(value.func)} has a dot", "import field")
    options = {keyword.arg: keyword for keyword in value.keywords}
    for option in options:
        if option not in FIELD_OPTIONS:
            what = f"field({option or '**'}=...) is not translated"
            source.refuse(value, what, f"use {', '.join(FIELD_OPTIONS)} alone")
    truths = {
        option: _truth(source, options[option])
        for option in ("init", "compare", "repr")
        if option in options
    }
    default = source.of(options["default"].value) if "default" in options else None
    made = None
    if "default_factory" in options:
        made = _made(source, options["default_factory"].value)
        if truths.get("init", True) and may_be_none(node.annotation):
            source.refuse(node, f"{name} may be None and has a factory", "let None be its default")
    return Field(name, kind, f"_dressing.{said}", default, made, **truths)


def _made(source: Source, factory: ast.expr) -> str:
    """The call of a factory; of a lambda without arguments, what it gives."""
    if isinstance(factory, ast.Lambda) and not factory.args.args:
        return f"({source.of(factory.body)})"
    return (
        f"{source.of(factory)}()" if isinstance(factory, ast.Name) else f"({source.of(factory)})()"
    )
