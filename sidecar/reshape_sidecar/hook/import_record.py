"""Records an import step by step, so that a forked process can do the same without running it.

Does: notes for each module, in order, the modules that its body imports and what it changes for the
whole process: random words that it draws, environment variables, warning filters, finders. Exit
handlers are noted instead of registered. Never: changes what a module sees while it is imported.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

RANDOM_WORDS = 624
"""Words of Python's generator between two renewals of its state."""
_NO_NAMES: set[str] = set()
LOOK_BACK = 16
"""Entries of ``sys.modules`` that may be known before the newest that is not."""


@dataclass(frozen=True, slots=True)
class Import:
    """The body imports a module, which may be imported already."""

    name: str


@dataclass(frozen=True, slots=True)
class RandomWords:
    """The body draws 32-bit words from Python's generator."""

    count: int


@dataclass(frozen=True, slots=True)
class Variables:
    """The body sets environment variables; None removes one."""

    values: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class WarningFilters:
    """The body adds warning filters before and after the others, in the order of the list."""

    before: tuple[Any, ...]
    after: tuple[Any, ...]
    removed: tuple[Any, ...] = ()
    """Filters that the body takes away, mostly those that it has added for a while."""


@dataclass(frozen=True, slots=True)
class Finder:
    """The body adds a finder to ``sys.meta_path``, right after another; None: as the first."""

    finder: Any
    after: Any


@dataclass(frozen=True, slots=True)
class ExitHandler:
    """The body registers an exit handler."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    names: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Attributes:
    """The body replaces attributes of another module."""

    module: ModuleType
    values: dict[str, Any]


Step = Import | RandomWords | Variables | WarningFilters | Finder | ExitHandler | Attributes


@dataclass(slots=True)
class ModuleRecord:
    """What the import of one module did, in order."""

    steps: list[Step] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    """Names in the steps, while they are recorded."""

    def imports(self, name: str) -> None:
        """Note an import unless it is noted."""
        if name not in self.names:
            self.names.add(name)
            self.steps.append(Import(name))


@dataclass(frozen=True, slots=True)
class Records:
    """The records of all modules, in few objects: a fork writes into the page of each object."""

    imports: str
    """A line for each module: its name, and those that its body imports if that is all it does."""
    others: dict[str, tuple[Step, ...]]
    """The steps of the other modules, by name."""


def packed(modules: Iterable[str], records: Mapping[str, ModuleRecord]) -> Records:
    """Return the records of ``modules``; one without a record imports nothing."""
    lines, others = [], {}
    for name in modules:
        steps = records[name].steps if name in records else []
        names = [step.name for step in steps if isinstance(step, Import)]
        if len(names) < len(steps):
            others[name] = tuple(steps)
        lines.append(" ".join([name, *names]))
    return Records("\n".join(lines), others)


def records_of(imports: Mapping[str, Iterable[str]]) -> dict[str, ModuleRecord]:
    """Return records of modules that were imported before there was a recorder.

    ``imports``: the names that each of them imports, in order; not every name is a module.
    """
    records = {
        importer: ModuleRecord([Import(name) for name in names if name in sys.modules])
        for importer, names in imports.items()
    }
    for name, module in sys.modules.items():
        parent = name.rpartition(".")[0]
        spec = getattr(module, "__spec__", None)
        if parent in records and (spec is None or spec.name != name):
            records[parent].imports(name)  # the body of the parent has put it there
    return records


class ImportRecorder(importlib.abc.MetaPathFinder):
    """Records all imports within ``recording``, in the thread that runs it."""

    def __init__(self) -> None:
        self.modules: dict[str, ModuleRecord] = {}
        self._stack: list[ModuleRecord] = [ModuleRecord()]
        self._known: set[str] = set()
        self._import = builtins.__import__
        self._state = _ProcessState()
        self._bare: dict[str, frozenset[str]] = {}
        """Attributes that each module of a class of its own had when its body had run."""

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what is imported within the context."""
        register = atexit.register
        self._known = set(sys.modules)
        sys.meta_path.insert(0, self)
        self._state.read()
        builtins.__import__ = self._note_import  # type: ignore[assignment]
        atexit.register = self._note_exit_handler  # type: ignore[assignment]
        try:
            yield
        finally:
            atexit.register = register
            builtins.__import__ = self._import
            sys.meta_path.remove(self)
            for record in self.modules.values():
                record.names = _NO_NAMES

    def import_later(self, name: str, package: str) -> None:
        """Import the module ``name``, which ``package`` has not imported.

        Until its replay ``package`` keeps the attributes that this replaces.
        """
        module = sys.modules[package]
        before = dict(vars(module))
        importlib.import_module(name)
        changed = {
            key: value
            for key, value in vars(module).items()
            if key in before and value is not before[key]
        }
        self.modules[name].steps.append(Attributes(module, changed))
        vars(module).update({key: before[key] for key in changed})

    def import_name(self, name: str) -> None:
        """Import a module (``transformers.trainer``), or what the import of an attribute of one
        imports (``transformers:Trainer``). What fails here fails in the script too, which says why.
        """
        module, _, attribute = name.partition(":")
        with contextlib.suppress(Exception):
            found = importlib.import_module(module)
            if attribute:
                getattr(found, attribute)

    def empty_lazy_modules(self) -> frozenset[str]:
        """Take from modules of classes of their own what they have got since their body ran, so
        that a script's read of an attribute imports again; return their names."""
        lazy = set()
        for name, attributes in self._bare.items():
            module = sys.modules.get(name)
            if module is not None and type(module) is not ModuleType:
                lazy.add(name)
                for attribute in [one for one in vars(module) if one not in attributes]:
                    delattr(module, attribute)
        return frozenset(lazy)

    def own_variables(self) -> frozenset[str]:
        """Return the environment variables that the recorded imports set."""
        return frozenset(
            name
            for record in self.modules.values()
            for step in record.steps
            if isinstance(step, Variables)
            for name, _ in step.values
        )

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the other finders' spec with its loader wrapped."""
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                self._known.add(fullname)
                # A class is the loader of all modules that Python has built in.
                if spec.loader is not None and not isinstance(spec.loader, type):
                    self._wrap(spec.loader, fullname)
                else:
                    self._stack[-1].imports(fullname)
                return spec
        return None

    def _wrap(self, loader: Any, name: str) -> None:
        record = self.modules[name] = ModuleRecord()
        create, execute = loader.create_module, loader.exec_module

        def create_module(spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
            self._stack[-1].imports(name)  # found alone is not imported: a body may ask for it
            with self._body(record):
                module: ModuleType | None = create(spec)
                return module

        def exec_module(module: ModuleType) -> None:
            del loader.create_module, loader.exec_module
            with self._body(record):
                execute(module)
            made = sys.modules.get(name)
            if made is not None and type(made) is not ModuleType:
                self._bare[name] = frozenset(vars(made))

        loader.create_module, loader.exec_module = create_module, exec_module

    @contextmanager
    def _body(self, record: ModuleRecord) -> Iterator[None]:
        """Note what the code in the context does as that of ``record``'s module."""
        self._note_changes()
        self._stack.append(record)
        try:
            yield
        finally:
            self._note_changes()
            self._stack.pop()

    def _note_changes(self) -> None:
        """Note what the running body changed; modules that it made itself count as imports."""
        record = self._stack[-1]
        record.steps += self._state.changes()
        new = []
        steps_left = LOOK_BACK
        for name in reversed(sys.modules):
            if name not in self._known:
                new.append(name)
            elif (steps_left := steps_left - 1) == 0:
                break
        self._known.update(new)
        for name in reversed(new):
            record.imports(name)

    def _note_import(
        self,
        name: str,
        module_globals: Any = None,
        module_locals: Any = None,
        fromlist: Any = (),
        level: int = 0,
    ) -> ModuleType:
        if len(self._stack) == 1:
            return self._import(name, module_globals, module_locals, fromlist, level)
        record = self._stack[-1]
        if level:
            package = (module_globals or {}).get("__package__") or ""
            name_abs = importlib.util.resolve_name("." * level + name, package)
        else:
            name_abs = name
        record.imports(name_abs)
        module = self._import(name, module_globals, module_locals, fromlist, level)
        for item in fromlist or ():
            below = f"{name_abs}.{item}"
            if below in sys.modules and getattr(module, item, None) is sys.modules[below]:
                record.imports(below)
        return module

    def _note_exit_handler(self, function: Any, *arguments: Any, **names: Any) -> Any:
        self._stack[-1].steps.append(ExitHandler(function, arguments, names))
        return function


class _ProcessState:
    """State of the process that imports change, and its changes since the last look."""

    def __init__(self) -> None:
        self.read()

    def read(self) -> None:
        """Read the state of now."""
        self._random = _random_position()
        self._variables = dict(os.environ)
        self._filters = list(warnings.filters)
        self._finders = list(sys.meta_path)

    def changes(self) -> list[Step]:
        """Return the changes since the last look as steps."""
        steps: list[Step] = []
        position = _random_position()
        if position != self._random:
            steps.append(RandomWords((position - self._random) % RANDOM_WORDS))
            self._random = position
        if self._variables != os.environ:
            now = dict(os.environ)
            names = list({**self._variables, **now})
            steps.append(
                Variables(
                    tuple(
                        (name, now.get(name))
                        for name in names
                        if now.get(name) != self._variables.get(name)
                    )
                )
            )
            self._variables = now
        if self._filters != warnings.filters:
            filters = list(warnings.filters)
            steps.append(_new_filters(self._filters, filters))
            self._filters = filters
        if self._finders != sys.meta_path:
            finders = list(sys.meta_path)
            for index, finder in enumerate(finders):
                if finder not in self._finders:
                    steps.append(Finder(finder, finders[index - 1] if index else None))
            self._finders = finders
        return steps


def _new_filters(before: list[Any], now: list[Any]) -> WarningFilters:
    new = [entry for entry in now if entry not in before]
    end = max((index for index, entry in enumerate(now) if entry in before), default=len(now))
    return WarningFilters(
        tuple(entry for entry in new if now.index(entry) < end),
        tuple(entry for entry in new if now.index(entry) > end),
        tuple(entry for entry in before if entry not in now),
    )


def _random_position() -> int:
    """Return how many words of its state Python's generator has used."""
    return int(random.getstate()[1][-1])
