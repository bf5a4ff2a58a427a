"""The sources as they are compiled: a copy of the packages, the named modules translated.

Does: reads which modules are compiled, copies every package's Python files into an empty folder,
translates those modules there, and lays ``_dressing`` into their packages. Never: touches the
originals, or copies what is no source. State: the files that it writes.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from native import copies
from native.module import DRESSING, translate


class UnknownModule(Exception):
    """pyproject.toml names something to compile that is not there."""


@dataclass(frozen=True, slots=True)
class Staged:
    """What lies in a folder. Paths are relative to it, as they are in a wheel."""

    folder: Path
    compiled: tuple[str, ...]
    """Modules that are compiled, ``_dressing`` among them."""


def compiled_modules(root: Path, entries: Sequence[str], left_out: Sequence[str]) -> list[Path]:
    """The modules that ``entries`` name, each a file or a folder. Raises UnknownModule."""
    found: dict[Path, None] = {}
    for entry in entries:
        path = root / entry
        modules = sorted(path.glob("*.py")) if path.is_dir() else [path]
        if not modules or not all(module.is_file() for module in modules):
            raise UnknownModule(f"{entry} is to be compiled and is not there; see pyproject.toml")
        found |= dict.fromkeys(module for module in modules if module.stem != "__init__")
    for entry in left_out:
        if root / entry not in found:
            raise UnknownModule(f"{entry} is left out and is not there; see pyproject.toml")
        del found[root / entry]
    return list(found)


def stage(root: Path, packages: Sequence[str], modules: Sequence[Path], folder: Path) -> Staged:
    """Lay the packages into ``folder``, the modules translated. Raises Refused."""
    chosen, names = set(modules), []
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in modules]
    copied = set().union(*map(copies.asked, trees))
    for package in packages:
        home = (root / package).parent
        used = False
        for path in sorted((root / package).rglob("*.py")):
            name = path.relative_to(home).as_posix()
            text = path.read_text(encoding="utf-8")
            if path in chosen:
                text = translate(text, name, copied)
                names.append(name)
                used = True
            _write(folder / name, text)
        if used:
            dressing = f"{Path(package).name}/{DRESSING}.py"
            source = Path(__file__).with_name("dressing.py").read_text(encoding="utf-8")
            _write(folder / dressing, source)
            names.append(dressing)
    return Staged(folder, tuple(names))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
