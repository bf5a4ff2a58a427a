"""Classes that are made with options, such as policies: what others ask of them.

Does: writes out the signature of a class whose constructor has a default for everything, and how it
is pickled; a compiled class has neither. Never: touches a class that needs an argument: pickling
one of those fails. State: none.
"""

from __future__ import annotations

import ast

from native.source import Source, methods


def has_options(cls: ast.ClassDef) -> bool:
    """Whether it has a constructor that needs nothing."""
    init = methods(cls).get("__init__")
    if init is None or cls.bases or cls.keywords or cls.decorator_list:
        return False
    given = init.args
    if given.vararg is not None or given.kwarg is not None or given.posonlyargs:
        return False
    return len(given.defaults) == len(given.args) - 1 and None not in given.kw_defaults


def write(source: Source, cls: ast.ClassDef) -> None:
    """Add to one class what its compiled form lacks."""
    init = methods(cls)["__init__"]
    given = init.args
    defaults = [*given.defaults, *(entry for entry in given.kw_defaults if entry is not None)]
    names = [entry.arg for entry in (*given.args[1:], *given.kwonlyargs)]
    keywords = [entry.arg for entry in given.kwonlyargs]
    entries = (f"{name!r}: {source.of(entry)}" for name, entry in zip(names, defaults, strict=True))
    state = "".join(f"            {name!r}: self.{name},\n" for name in _attributes(init))
    listed = f"{{\n{state}        }}" if state else "{}"
    source.add_after(
        cls,
        "\n    def __reduce__(self) -> _Any:\n"
        f"        state: dict[str, _Any] = {listed}\n"
        f"        return {cls.name}, (), state\n"
        "\n    def __setstate__(self, state: dict[str, _Any]) -> None:\n"
        "        for name, value in state.items():\n"
        "            setattr(self, name, value)\n"
        f"\n\n_dressing.signed({cls.name}, {keywords!r}, {{{', '.join(entries)}}})\n",
    )


def _attributes(init: ast.FunctionDef) -> list[str]:
    """What the constructor sets, in its order."""
    found = [
        node.attr
        for node in ast.walk(init)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    ]
    return list(dict.fromkeys(found))
