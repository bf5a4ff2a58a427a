"""Puts recorded modules back when the script imports them, in the order of the first import.

Does: takes the modules out of ``sys.modules``; when the script imports one, does the steps of its
record, those of the modules that it needs first. A module that an ``ImportWatch`` watches goes
through the import system, so that the watch is called as in a cold start.
"""

from __future__ import annotations

import atexit
import contextlib
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
    ModuleRecord,
    RandomWords,
    Step,
    Variables,
    WarningFilters,
)
from reshape_sidecar.hook.imports import ImportWatch


class ImportReplay(MetaPathFinder):
    """A finder for the modules in ``records``.

    ``check`` is called before each import by the script, with the module's name; ``done`` after it.
    """

    def __init__(
        self,
        records: dict[str, ModuleRecord],
        check: Callable[[str], object] = lambda _: None,
        done: Callable[[], object] = lambda: None,
    ) -> None:
        self._records = records
        self._check = check
        self._done = done
        self._absent: dict[str, Any] = {}
        self._busy = False

    def begin(self, names: Iterable[str]) -> None:
        """Take the modules ``names`` out of ``sys.modules``, and find them from now on."""
        for name in names:
            self._absent[name] = sys.modules.pop(name)
        process_image.keep(self._absent)
        atexit.register(self._end)  # the first that is registered is called last
        for name, module in self._absent.items():
            parent, _, child = name.rpartition(".")
            holder = self._absent.get(parent, sys.modules.get(parent)) if parent else None
            if type(holder) is ModuleType and vars(holder).get(child) is module:
                del vars(holder)[child]
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec that puts the module back; None if it does not wait to be imported."""
        if fullname not in self._absent:
            return None
        if not self._busy:
            self._check(fullname)
        loader = _ReplayLoader(self._absent[fullname], self.put_back)
        return ModuleSpec(fullname, loader)

    def _end(self) -> None:
        """Call the exit handlers of modules that the script has not imported.

        Their libraries are in this process all the same: that of h5py crashes at the end without.
        The handlers see their modules: those of PyTorch use them.
        """
        sys.modules.update(self._absent)
        for name in self._absent:
            self._set_in_parent(name)
        for name in reversed(list(self._absent)):
            record = self._records.get(name)
            for step in reversed(record.steps if record is not None else ()):
                if isinstance(step, ExitHandler):
                    with contextlib.suppress(Exception):
                        step.function(*step.arguments, **step.names)
        for name in self._absent:
            sys.modules.pop(name, None)

    def put_back(self, name: str) -> None:
        """Do the steps of the import of ``name``."""
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
        if not self._absent and self in sys.meta_path:
            sys.meta_path.remove(self)

    def _put_back(self, name: str, watched: set[str]) -> None:
        sys.modules[name] = self._absent.pop(name)
        record = self._records.get(name)
        for step in record.steps if record is not None else ():
            if isinstance(step, Import):
                self._import(step.name, watched)
            else:
                do(step)
        if record is not None:
            sys.modules[name] = sys.modules.pop(name)  # the order of the import system
        self._set_in_parent(name)

    def _set_in_parent(self, name: str) -> None:
        parent, _, child = name.rpartition(".")
        holder = sys.modules.get(parent) if parent else None
        if type(holder) is ModuleType:
            vars(holder).setdefault(child, sys.modules[name])

    def _import(self, name: str, watched: set[str]) -> None:
        if name not in self._absent:
            return
        parent = name.rpartition(".")[0]
        if parent:
            self._import(parent, watched)
            if name not in self._absent:
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
