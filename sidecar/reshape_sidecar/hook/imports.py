"""Callbacks at the import of named modules, without importing them.

Does: watches for the modules on ``sys.meta_path``, and calls a function right after the body of one
has run, and optionally one right before. The other finders still find the module. The watch removes
itself after the last module.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

Patch = Callable[[ModuleType], None]


class ImportWatch(importlib.abc.MetaPathFinder):
    """A finder that delegates to the others and wraps the loader of a watched module."""

    def __init__(self) -> None:
        self._patches: dict[str, Patch] = {}
        self._before: dict[str, Callable[[], None]] = {}
        self._searching = False

    def after(self, name: str, patch: Patch) -> None:
        """Call ``patch`` with module ``name`` after its import; at once if it is imported."""
        if name in sys.modules:
            patch(sys.modules[name])
            return
        self._patches[name] = patch
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def before(self, name: str, call: Callable[[], None]) -> None:
        """Call ``call`` when the import of the watched module ``name`` begins."""
        self._before[name] = call

    def names(self) -> frozenset[str]:
        """Return the names of the watched modules that were not imported yet."""
        return frozenset(self._patches)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the other finders' spec with its loader wrapped; None if not watched."""
        if fullname not in self._patches or self._searching:
            return None
        self._searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searching = False
        if spec is not None and spec.loader is not None:
            self._wrap(spec.loader, fullname)
        return spec

    def _wrap(self, loader: importlib.abc.Loader, name: str) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            self._before.pop(name, _nothing)()
            execute(module)
            patch = self._patches.pop(name, None)
            if not self._patches and self in sys.meta_path:
                sys.meta_path.remove(self)
            if patch is not None:
                patch(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]


def _nothing() -> None:
    return
