"""No two shipped files import each other, directly or in a ring.

A ring cannot be read, moved or tested in parts. Imports for types alone and imports inside
functions count as well.
"""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = ("controller", "sidecar", "launcher", "profiles")

Graph = dict[str, set[str]]
"""The shipped modules that each shipped module imports."""


def modules(*roots: Path) -> dict[str, Path]:
    """The file of every module below these folders, by its dotted name."""
    found = {}
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def import_graph(files: dict[str, Path]) -> Graph:
    """The imports between these modules, wherever they stand in a file."""
    graph: Graph = {}
    for module, path in files.items():
        names: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                source = origin(module, path, node)
                for alias in node.names:
                    submodule = f"{source}.{alias.name}"
                    names.add(submodule if submodule in files else source)
        graph[module] = names & files.keys()
    return graph


def origin(module: str, path: Path, node: ast.ImportFrom) -> str:
    """The absolute name of the module that ``from ... import`` names."""
    parts = module.split(".")
    package = parts if path.name == "__init__.py" else parts[:-1]
    start = package[: len(package) - node.level + 1] if node.level else []
    return ".".join([*start, *filter(None, [node.module])])


def ring(graph: Graph) -> list[str]:
    """One ring of imports, its first module repeated at the end; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found[::-1]
    return []


def test_no_shipped_files_import_each_other_directly_or_in_a_ring() -> None:
    files = modules(*(ROOT / root for root in SOURCE_ROOTS))
    assert len(files) > 200, "the source roots were not found"
    graph = import_graph(files)
    assert sum(map(len, graph.values())) > 1000, "the imports were not found"
    assert " -> ".join(ring(graph)) == ""


@pytest.mark.parametrize(
    "last",
    [
        "import shop.a",
        "from shop import a",
        "from shop.a import A",
        "from . import a",
        "from .a import A",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from shop.a import A",
        "def late():\n    from shop.a import A",
    ],
)
def test_a_ring_of_three_files_is_found_however_its_last_import_is_written(
    tmp_path: Path, last: str
) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    texts = {"__init__": "", "a": "from shop import b", "b": "import shop.c", "c": last}
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    found = ring(import_graph(modules(tmp_path)))
    assert found[0] == found[-1]
    assert set(found) == {"shop.a", "shop.b", "shop.c"}
    assert ("shop.a", "shop.b") in pairwise(found)


def test_files_without_a_ring_have_none(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import b\nimport c")
    (tmp_path / "b.py").write_text("import c")
    (tmp_path / "c.py").write_text("import os")
    assert ring(import_graph(modules(tmp_path))) == []
