"""A changed copy of a value, by the value's own method.

Does: turns ``replace(value, field=...)`` into ``(value).__replace__(field=...)``, whose type and
code the compiler knows. Never: touches another ``replace``. State: none.
"""

from __future__ import annotations

import ast

from native.source import Source

NAME = "replace"
HOMES = ("dataclasses", "reshape_controller.core.replacing")


def write(source: Source) -> None:
    """Translate every call of ``replace``. Raises Refused."""
    imports = [node for node in source.tree.body if isinstance(node, ast.ImportFrom)]
    if NAME not in {e.name for node in imports if node.module in HOMES for e in node.names}:
        return
    called = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == NAME:
            if len(node.args) != 1 or not node.keywords or isinstance(node.args[0], ast.Starred):
                source.refuse(node, "replace without one value and fields", "name the fields")
            called.add(node.func)
            source.put(node.func, "")
            source.put_comma_after(node.args[0], ").__replace__(")
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Name) and node.id == NAME and node not in called:
            source.refuse(node, "replace is not called here", "call it")
