"""Where a function is bound: the names in modules and the closures that hold it.

Does: finds these once, so that a fork which replaces the function does so in modules that have
taken it over by an import. In a cold start the function is replaced before they do. Standard
library only.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import CellType
from typing import Any

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """One place that holds a function: a closure, or a name in a dictionary."""

    place: CellType | dict[Any, Any]
    name: Any = None

    def set(self, function: Function) -> None:
        """Put another function there."""
        if isinstance(self.place, CellType):
            self.place.cell_contents = function
        else:
            self.place[self.name] = function


def find(functions: Iterable[Function]) -> dict[int, list[Binding]]:
    """Return the bindings of each of ``functions`` in this process, by its ``id``."""
    wanted = {id(function): function for function in functions}
    found: dict[int, list[Binding]] = {number: [] for number in wanted}
    for holder in gc.get_referrers(*wanted.values()):
        if holder is wanted:
            continue
        if isinstance(holder, CellType):
            found[id(holder.cell_contents)].append(Binding(holder))
        elif isinstance(holder, dict):
            for name, value in holder.items():
                if id(value) in wanted:
                    found[id(value)].append(Binding(holder, name))
    return found
