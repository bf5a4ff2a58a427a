"""The form of a program: of its script, and of what the script uses of modules beside it.

Does: where the script itself shows no form, follows the names that it imports from its code folder,
definition by definition. So a Trainer counts in a function that the script uses, and does not in
another one of the same module, or in what that module does as a script.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from reshape_controller.records.script_forms import (
    MAIN,
    TOP,
    Form,
    Found,
    Module,
    Unit,
    Unreadable,
    first,
    forms_of,
    read_module,
)
from reshape_sidecar import foreign

SCRIPT_BYTES_MAX = 256 * 1024
"""A longer text is not read: parsing it would keep the daemon busy."""
MODULES_MAX = 100
"""Modules of one program that are read."""
PARTS_MAX = 16
"""A longer dotted name is not followed: modules may import a name from each other."""


class Unread(ValueError):
    """A file cannot be read; the message says why."""


class Program:
    """The text of a script and of the modules beside it that it reaches."""

    def __init__(self, script: Path, package: str, roots: tuple[Path, ...]) -> None:
        """Read the script. Raises Unread.

        package: that of the script, if it runs as a module. roots: folders of its modules.
        """
        self._own, self._roots = _read(script, package), roots

    def form(self) -> Found:
        """Return the form of the program."""
        units = self._own.units.values()
        found = [Found(form, line) for unit in units for form, line in unit.forms.items()]
        form = first(found)
        if form.form not in (Form.NONE, Form.SESSION):
            return form
        form = first([*found, *self._walk.found])
        if form.form is Form.NONE and self._walk.is_cut:
            return Found(Form.NONE, place=f"as far as {MODULES_MAX} of its modules show")
        return form

    def imports(self) -> frozenset[str]:
        """Return the packages that the program imports, by their names at the top."""
        modules = (self._own, *self._walk.modules())
        dotted = [name for module in modules for name in module.imports()]
        return frozenset(name.partition(".")[0] for name in dotted)

    @cached_property
    def _walk(self) -> _Walk:
        return _Walk(self._own, self._roots)


def _read(path: Path, package: str) -> Module:
    try:
        source = foreign.read(path, SCRIPT_BYTES_MAX)
    except foreign.TooLong:
        raise Unread(f"{path} is longer than {SCRIPT_BYTES_MAX} bytes") from None
    except (OSError, ValueError) as error:
        raise Unread(f"{path} cannot be read: {error}") from None
    try:
        return read_module(source, package)
    except Unreadable as error:
        raise Unread(f"{path} cannot be read as Python: {error}") from None


def _with_stars(module: Module, use: str) -> list[str]:
    """Return a name of another module, and what it is if a module with all its names has it."""
    return [use, *(f"{star}.{use}" for star in module.stars)]


class _Walk:
    """What a script reaches of the modules below ``roots``."""

    def __init__(self, script: Module, roots: tuple[Path, ...]) -> None:
        self._roots = roots
        self._modules: dict[str, tuple[Module, str] | None] = {}
        """Each module that was looked for, and its file below its root; None: not one of these."""
        self._left: list[tuple[str, bool]] = []
        """Dotted names to follow, and whether they are used, or imported alone."""
        self._seen: set[tuple[str, bool]] = set()
        self._reached: set[tuple[str, str]] = set()
        self.is_cut = False
        """Whether there are more modules than are read."""
        self.found = tuple(self._forms(script))
        """The forms of all units that the script reaches."""

    def modules(self) -> Iterator[Module]:
        """Yield the modules that were read."""
        yield from (known[0] for known in self._modules.values() if known is not None)

    def _forms(self, script: Module) -> Iterator[Found]:
        for unit in script.units.values():
            yield from self._reach(script, unit)
        while self._left:
            if (following := self._left.pop()) not in self._seen:
                self._seen.add(following)
                yield from self._follow(*following)

    def _reach(self, module: Module, unit: Unit, name: str = "", file: str = "") -> Iterator[Found]:
        """Yield the forms of a unit of a module, and follow what it uses.

        name, file: the module's; empty for the script.
        """
        yield from (Found(form, line, file) for form, line in unit.forms.items())
        for called, node in unit.calls:
            for origin in self._outside(module, called):
                for form, line in forms_of(origin, node, is_numbered=module.is_numbered):
                    yield Found(form, line, file)
        self._left += [(imported, False) for imported in unit.imports]
        for use in unit.uses:
            if use.partition(".")[0] not in module.units:
                self._left += [(origin, True) for origin in _with_stars(module, use)]
            elif name:
                self._left.append((f"{name}.{use}", True))

    def _outside(self, module: Module, called: str) -> Iterator[str]:
        """Yield what a name that modules pass on stands for outside of them."""
        left, seen = _with_stars(module, called), set()
        while left:
            dotted = left.pop()
            parts = dotted.split(".")
            inside = 0
            while inside < len(parts) and self._module(".".join(parts[: inside + 1])):
                inside += 1
            if not inside:
                yield dotted
            elif inside < len(parts) <= PARTS_MAX and dotted not in seen:
                seen.add(dotted)
                left += self._passed_on(".".join(parts[:inside]), parts[inside:])

    def _passed_on(self, name: str, rest: list[str]) -> list[str]:
        """Return what ``rest`` of the module ``name`` may stand for if that does not define it."""
        known = self._modules[name]
        assert known is not None
        if rest[0] in known[0].units:
            return []
        return [".".join((origin, *rest[1:])) for origin in known[0].origins(rest[0])]

    def _follow(self, dotted: str, is_used: bool) -> Iterator[Found]:
        """Yield the forms of what a name stands for, and of the imports on the way."""
        parts = dotted.split(".")
        for count in range(1, len(parts) + 1):
            name = ".".join(parts[:count])
            if self._module(name) is not None:
                yield from self._unit(name, TOP)
                continue
            if count > 1 and is_used:
                yield from self._member(".".join(parts[: count - 1]), parts[count - 1 :])
            return

    def _member(self, name: str, rest: list[str]) -> Iterator[Found]:
        """Yield the forms of what ``rest`` names in the module ``name``, which may import it."""
        known = self._modules[name]
        assert known is not None
        module, wanted = known[0], rest[0]
        if wanted in module.units:
            yield from self._unit(name, wanted)
        passed_on = self._passed_on(name, rest)
        self._left += [(each, True) for each in passed_on if each.count(".") < PARTS_MAX]

    def _unit(self, name: str, unit_name: str) -> Iterator[Found]:
        known = self._modules[name]
        assert known is not None
        if (name, unit_name) in self._reached or unit_name == MAIN:
            return
        self._reached.add((name, unit_name))
        module, file = known
        yield from self._reach(module, module.units[unit_name], name, file)

    def _module(self, name: str) -> tuple[Module, str] | None:
        if name not in self._modules:
            self._modules[name] = self._found(name)
        return self._modules[name]

    def _found(self, name: str) -> tuple[Module, str] | None:
        if sum(known is not None for known in self._modules.values()) >= MODULES_MAX:
            self.is_cut = True
            return None
        place = name.replace(".", "/")
        for root in self._roots:
            for file, package in (
                (f"{place}.py", name.rpartition(".")[0]),
                (f"{place}/__init__.py", name),
            ):
                path = root / file
                try:
                    if path.is_file():
                        return _read(path, package), file
                except (OSError, ValueError):
                    continue  # Python, too, reads the text at the start
        is_folder = any(os.path.isdir(root / place) for root in self._roots)
        return (read_module(b""), place) if is_folder else None
