"""A module as mypyc should see it: values, cached properties and classes with options written out.

Does: finds them, has them translated, and imports what they need; a module without any stays as it
is. Never: writes a file; translates what it does not know: that is refused, with its line.
State: none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from native import constants, copies, fields, kept, options, values
from native.source import Source, named

DRESSING = "_dressing"
"""What a package calls its copy of ``native/dressing.py``."""
TRANSLATED = {"dataclass", "cached_property"}
KNOWN = {*TRANSLATED, "field", "replace"}
"""What is found by its name."""


def translate(text: str, name: str, copied: Iterable[copies.Names] = ()) -> str:
    """The translated text of a module. ``name`` is its path from its package on, and what errors
    call it; ``copied``: which fields other modules replace together. Raises Refused."""
    source = Source(text, name)
    together = {*copied, *copies.asked(source.tree)}
    classes = [node for node in source.tree.body if isinstance(node, ast.ClassDef)]
    _refuse_hidden(source, classes)
    written = False
    for cls in classes:
        decorator = fields.decorator_of(cls)
        kept.write(source, cls)
        if decorator is not None:
            values.write(source, cls, decorator, together)
            written = True
        elif options.has_options(cls):
            options.write(source, cls)
            written = True
    constant = constants.write(source)
    if written or constant:
        source.add_after(_last_import(source), "from typing import Any as _Any, Final as _Final\n")
    if written:
        package = name.partition("/")[0]
        source.add_after(_last_import(source), f"from {package} import {DRESSING}\n")
    copies.write(source)
    return source.result()


def _last_import(source: Source) -> ast.stmt:
    """Below which another may stand. Annotations have to be texts: classes name each other."""
    imports = [node for node in source.tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    if not any(
        isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in imports
    ):
        source.refuse(source.tree, "no postponed annotations", "import annotations from __future__")
    return imports[-1]


def _refuse_hidden(source: Source, classes: list[ast.ClassDef]) -> None:
    """What the translation would not find: it knows classes of the module and their methods."""
    seen = {id(entry) for cls in classes for entry in cls.decorator_list}
    for cls in classes:
        for node in cls.body:
            if isinstance(node, ast.FunctionDef):
                seen |= {id(entry) for entry in node.decorator_list}
    for inner in ast.walk(source.tree):
        if isinstance(inner, ast.alias) and inner.asname and inner.name in KNOWN:
            source.refuse(inner, f"{inner.name} is renamed", "import it as it is called")
        for entry in getattr(inner, "decorator_list", []):
            if named(entry) in TRANSLATED and id(entry) not in seen:
                source.refuse(entry, f"{named(entry)} is hidden in here", "put it into the module")
            if named(entry) in TRANSLATED and "." in source.of(entry).partition("(")[0]:
                source.refuse(entry, f"{source.of(entry)} has a dot", f"import {named(entry)}")
