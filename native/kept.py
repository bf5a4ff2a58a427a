"""A cached property as an attribute and a property that fills it.

Does: writes out what ``functools.cached_property`` does, which mypyc would compute at every access.
Never: keeps None: a property that may be None is refused. State: none.
"""

from __future__ import annotations

import ast

from native.source import Source, may_be_none, methods, named


def write(source: Source, cls: ast.ClassDef) -> None:
    """Translate the cached properties of a class. Raises Refused."""
    for method in methods(cls).values():
        found = [entry for entry in method.decorator_list if named(entry) == "cached_property"]
        if not found:
            continue
        if len(method.decorator_list) > 1:
            source.refuse(method, f"{method.name} has another decorator", "leave one there")
        if method.returns is None:
            source.refuse(method, f"{method.name} has no type", "write what it returns")
        if may_be_none(method.returns):
            source.refuse(method, f"{method.name} may be None", "keep it in a field of your own")
        source.put_decorator(found[0], _property(method.name, source.of(method.returns)))
        source.put_name(method, f"_made_{method.name}")


def _property(name: str, kind: str) -> str:
    """What stands in front of the method that makes the value."""
    return (
        f"    _kept_{name}: ({kind}) | None = None\n\n"
        "    @property\n"
        f"    def {name}(self) -> {kind}:\n"
        f"        found = self._kept_{name}\n"
        "        if found is None:\n"
        f"            found = self._kept_{name} = self._made_{name}()\n"
        "        return found\n\n"
    )
