"""Puts recorded modules back when the script imports them, in the order of the first import.

Does: takes the modules out of ``sys.modules``; when the script imports one, does the steps of its
record, those of the modules that it needs first. A module that an ``ImportWatch`` watches goes
through the import system, so that the watch is called as in a cold start.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from reshape_sidecar.hook import process_image
from reshape_sidecar.hook.import_record import (
    Attributes,
    ExitHandler,
    Finder,
    Import,
    RandomWords,
    Records,
    Step,
    Variables,
    WarningFilters,
)
from reshape_sidecar.hook.imports import ImportWatch


def hide(names: Iterable[str]) -> dict[str, Any]:
    """Take the modules ``names`` out of ``sys.modules`` and out of their packages; return them.

    Done before a fork: the fork then writes into none of the pages that this touches.
    """
    absent = {name: sys.modules.pop(name) for name in names}
    for name, module in absent.items():
        parent, _, child = name.rpartition(".")
        holder = absent.get(parent, sys.modules.get(parent)) if parent else None
        if type(holder) is ModuleType and vars(holder).get(child) is module:
            del vars(holder)[child]
    return absent


class ImportReplay(MetaPathFinder):
    """A finder for hidden modules.

    ``check`` is called before each import by the script, with the module's name; ``done`` after it.
    ``lazy``: modules of classes of their own that take their submodules as attributes.
    """

    def __init__(
        self,
        absent: dict[str, Any],
        records: Records,
        check: Callable[[str], object] = lambda _: None,
        done: Callable[[], object] = lambda: None,
        lazy: frozenset[str] = frozenset(),
    ) -> None:
        self._absent = absent
        """What ``hide`` has returned; None in the place of a module that is back."""
        self._records = records
        self._imports: dict[str, str] = {}
        """Lines of the records, by module, of those that are not back yet; empty before the first.
        """
        self._check = check
        self._done = done
        self._lazy = lazy
        self._busy = False

    def begin(self) -> None:
        """Find the hidden modules from now on."""
        process_image.keep(self._absent)
        atexit.register(gc.unfreeze)  # else Triton prints what the zygote froze as leaks
        atexit.register(self._end)  # the first that is registered is called last
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec that puts the module back; None if it does not wait to be imported."""
        module = self._absent.get(fullname)
        if module is None:
            return None
        if not self._busy:
            self._check(fullname)
        return ModuleSpec(fullname, _ReplayLoader(module, self.put_back))

    def _end(self) -> None:
        """Call the exit handlers of modules that the script has not imported.

        Their libraries are in this process all the same: that of h5py crashes at the end without.
        The handlers see their modules: those of PyTorch use them.
        """
        absent = {name: module for name, module in self._absent.items() if module is not None}
        sys.modules.update(absent)
        for name in absent:
            self._set_in_parent(name)
        for name in reversed(list(absent)):
            for step in reversed(self._records.others.get(name, ())):
                if isinstance(step, ExitHandler):
                    with contextlib.suppress(Exception):
                        step.function(*step.arguments, **step.names)
        for name in absent:
            sys.modules.pop(name, None)

    def put_back(self, name: str) -> None:
        """Do the steps of the import of ``name``."""
        if not self._imports:
            lines = self._records.imports.split("\n")
            self._imports = {line.partition(" ")[0]: line for line in lines}
        outermost, self._busy = not self._busy, True
        try:
            watched = {
                one
                for finder in sys.meta_path
                if isinstance(finder, ImportWatch)
                for one in finder.names()
            }
            self._put_back(name, watched)
        finally:
            if outermost:
                self._busy = False
        if outermost:
            self._done()
        if not self._imports and self in sys.meta_path:
            sys.meta_path.remove(self)

    def _put_back(self, name: str, watched: set[str]) -> None:
        line = self._imports.pop(name)
        name, *needed = line.split(" ")  # not the string of the zygote, whose page is shared
        sys.modules[name] = self._absent[name]
        self._absent[name] = None
        steps = self._records.others.get(name)
        if steps is None:
            for one in needed:
                self._import(one, watched)
        for step in steps or ():
            if isinstance(step, Import):
                self._import(step.name, watched)
            else:
                do(step)
        sys.modules[name] = sys.modules.pop(name)  # the order of the import system
        self._set_in_parent(name)

    def _set_in_parent(self, name: str) -> None:
        parent, _, child = name.rpartition(".")
        holder = sys.modules.get(parent) if parent else None
        if type(holder) is ModuleType or (parent in self._lazy and holder is not None):
            vars(holder).setdefault(child, sys.modules[name])

    def _import(self, name: str, watched: set[str]) -> None:
        if name not in self._imports:
            return
        parent = name.rpartition(".")[0]
        if parent:
            self._import(parent, watched)
            if name not in self._imports:
                return
        if name in watched:
            importlib.import_module(name)
        else:
            self._put_back(name, watched)


class _ReplayLoader(Loader):
    """Gives the import system a module that is there already."""

    def __init__(self, module: Any, put_back: Callable[[str], None]) -> None:
        self._module = module
        self._put_back = put_back
        # A module of a class of its own stays as it is: the import system would set attributes.
        self._own_spec = vars(module).get("__spec__") if type(module) is ModuleType else None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return the module itself; of another class, an empty one that it replaces."""
        return self._module if type(self._module) is ModuleType else None

    def exec_module(self, module: ModuleType) -> None:
        """Put the module back in ``sys.modules``."""
        assert module.__spec__ is not None
        name = module.__spec__.name
        if module is self._module:
            module.__spec__ = self._own_spec
        self._put_back(name)


def do(step: Step) -> None:
    """Repeat a change that an import made."""
    match step:
        case RandomWords(count):
            for _ in range(count):
                random.getrandbits(32)
        case Variables(values):
            for name, value in values:
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
        case WarningFilters(before, after, removed):
            filters: list[Any] = warnings.filters  # type: ignore[assignment]
            others = [entry for entry in filters if entry not in (*before, *after, *removed)]
            filters[:] = [*before, *others, *after]
            warnings._filters_mutated()  # type: ignore[attr-defined]
        case Finder(finder, after):
            index = 0
            if after is not None:  # a finder of the zygote's own was the last
                end = len(sys.meta_path)
                index = sys.meta_path.index(after) + 1 if after in sys.meta_path else end
            sys.meta_path.insert(index, finder)
        case ExitHandler(function, arguments, names):
            atexit.register(function, *arguments, **names)
        case Attributes(module, attributes):
            vars(module).update(attributes)
        case Import():
            raise AssertionError("an import is no change")
