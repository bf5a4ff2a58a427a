"""The constants of a module, marked as such: names in upper case that are assigned once, outside
functions.

Does: lets mypyc read them where they lie; it would look up each by its name in the module, every
time. Never: marks what is assigned again, or a tuple, which mypyc then takes for not set. State:
none.
"""

from __future__ import annotations

import ast
import re
from collections import Counter

from native.source import Source

_CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")


def write(source: Source) -> bool:
    """Mark them; whether there are any."""
    stored = Counter(
        node.id
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    found = False
    for node in source.tree.body:
        lines = _marked(source, node, stored)
        if lines:
            source.put(node, "\n".join(lines))
            found = True
    return found


def _marked(source: Source, node: ast.stmt, stored: Counter[str]) -> list[str]:
    """A statement as constants, one on each line; none if it is not all of constants."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return []
    target, value = node.targets[0], node.value
    targets, values = [target], [value]
    if isinstance(target, ast.Tuple):
        if not isinstance(value, ast.Tuple) or len(value.elts) != len(target.elts):
            return []
        targets, values = target.elts, value.elts
    names = [one.id for one in targets if isinstance(one, ast.Name)]
    if len(names) < len(targets):
        return []
    if any(isinstance(one, ast.Tuple) for one in values):
        return []
    if not all(_CONSTANT.fullmatch(name) and stored[name] == 1 for name in names):
        return []
    return [f"{name}: _Final = ({source.of(one)})" for name, one in zip(names, values, strict=True)]
