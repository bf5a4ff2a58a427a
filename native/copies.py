"""A changed copy of a value, by a method of the value's own for just these fields.

Does: turns ``replace(value, b=..., a=...)`` into ``(value)._with_a__b(b=..., a=...)``, whose types
and code the compiler knows; such a method is written for every class that has all the fields. With
fields that are known at run time only, ``**fields``, it is ``__replace__``. Never: touches another
``replace``. State: none.
"""

from __future__ import annotations

import ast

from native.source import Source

NAME = "replace"
HOMES = ("dataclasses", "reshape_controller.core.replacing")
ANY = "__replace__"

Names = tuple[str, ...]
"""Of the fields that a copy has other values in, in order."""


def asked(tree: ast.Module) -> set[Names]:
    """Which fields are replaced together in a module."""
    return {names for call in _calls(tree) if (names := _names(call)) is not None}


def method(names: Names) -> str:
    """What makes a copy with other values in just these fields is called so."""
    return f"_with_{'__'.join(names)}"


def write(source: Source) -> None:
    """Translate every call of ``replace``. Raises Refused."""
    calls = _calls(source.tree)
    for call in calls:
        if len(call.args) != 1 or not call.keywords or isinstance(call.args[0], ast.Starred):
            source.refuse(call, "replace without one value and fields", "name the fields")
        names = _names(call)
        source.put(call.func, "")
        source.put_comma_after(call.args[0], f").{ANY if names is None else method(names)}(")
    called = {call.func for call in calls}
    for node in ast.walk(source.tree) if _is_imported(source.tree) else ():
        if isinstance(node, ast.Name) and node.id == NAME and node not in called:
            source.refuse(node, "replace is not called here", "call it")


def _calls(tree: ast.Module) -> list[ast.Call]:
    if not _is_imported(tree):
        return []
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == NAME]


def _is_imported(tree: ast.Module) -> bool:
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return NAME in {entry.name for node in imports if node.module in HOMES for entry in node.names}


def _names(call: ast.Call) -> Names | None:
    """None: not all of them are known before it runs."""
    names = [entry.arg for entry in call.keywords if entry.arg is not None]
    return tuple(sorted(names)) if len(names) == len(call.keywords) else None
