"""House rules that a linter does not know, as tests: sizes, names, docstrings, stray paths.

Does: reads the repository's own files. Never: changes one. The reasons are in CONTRIBUTING.md.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = ("controller", "sidecar", "launcher", "profiles")
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
TEXT_SUFFIXES = (
    *(".cfg", ".in", ".ini", ".json", ".jsonl", ".lock", ".md"),
    *(".py", ".sh", ".svg", ".toml", ".txt", ".yaml", ".yml"),
)
BANNED_NAMES = {"common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}
DECIDING = tuple(
    f"controller/reshape_controller/{name}" for name in ("core", "scheduling", "policies")
)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def committed() -> list[Path]:
    """Files of the repository; build results and virtual environments are not among them."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs a git checkout to tell the repository's files from others")
    paths = (ROOT / name for name in listing.decode().split("\0") if name)
    return sorted(path for path in paths if path.is_file())


def product_modules() -> list[Path]:
    """Python files that are shipped."""
    found = [path for root in SOURCE_ROOTS for path in sorted((ROOT / root).rglob("*.py"))]
    assert len(found) > 20, "the source roots were not found"
    return found


def all_modules() -> list[Path]:
    return [path for path in committed() if path.suffix == ".py"]


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


def dotted(path: Path) -> str:
    """Import name of a shipped module."""
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_shipped_module_is_longer_than_it_may_be() -> None:
    lines = {relative(path): len(path.read_text().splitlines()) for path in product_modules()}
    too_long = {name: count for name, count in lines.items() if count > MODULE_LINES_MAX}
    assert too_long == {}, f"split these along a reason to change (at most {MODULE_LINES_MAX})"


def test_no_function_is_longer_than_it_may_be() -> None:
    too_long = [
        f"{relative(path)}:{node.lineno} {node.name}: {node.end_lineno - node.lineno + 1} lines"
        for path in all_modules()
        for node in functions(ast.parse(path.read_text()))
        if node.end_lineno is not None and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert too_long == []


def test_no_frozen_value_is_changed_after_its_constructor() -> None:
    """A cache on a value that a policy receives would tie its plan to earlier plans."""
    constructors = {"__init__", "__new__", "__post_init__"}
    found = []
    for path in product_modules():
        if relative(path).endswith("core/fast_replace.py"):
            continue  # it sets the fields of a copy that it makes
        tree = ast.parse(path.read_text())
        building = [node for node in functions(tree) if node.name in constructors]
        allowed = {id(inner) for node in building for inner in ast.walk(node)}
        found += [
            f"{relative(path)}:{node.lineno}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and node.attr == "__setattr__"
            if id(node) not in allowed
        ]
    assert found == []


def test_every_module_says_what_it_does() -> None:
    """An empty ``__init__.py`` has nothing to say; everything else has a docstring."""
    silent = [
        relative(path)
        for path in all_modules()
        if path.read_text().strip() and ast.get_docstring(ast.parse(path.read_text())) is None
    ]
    assert silent == []


def test_the_deciding_code_does_not_know_whether_the_world_is_real() -> None:
    word = "simulat"
    found = [
        f"{relative(path)}:{number}"
        for folder in DECIDING
        for path in sorted((ROOT / folder).rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if word in line.lower()
    ]
    assert found == []


def test_no_file_names_a_path_of_somebodys_machine() -> None:
    # Put together here, so that this file does not find itself.
    folders = "|".join(
        ("work/(?:main|shared)", "root/", "Users/", "home/(?!(?:ada|ann|eve|users?|USER)\\b|\\$)")
    )
    path_of_a_machine = re.compile(rf"(?<![\w.$}}])/(?:{folders})")
    found = [
        f"{relative(path)}:{number}: {line.strip()[:100]}"
        for path in committed()
        if path.suffix in TEXT_SUFFIXES or path.name in ("Makefile", "Dockerfile", "run")
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if path_of_a_machine.search(line)
    ]
    assert found == []


def test_nothing_points_pip_at_a_registry_of_its_own() -> None:
    """Where packages come from is the machine's configuration, never the repository's."""
    option = re.compile(r"--(?:extra-)?index-url|--trusted-host|--find-links|PIP_INDEX_URL")
    found = [
        f"{relative(path)}:{number}"
        for path in committed()
        if path.suffix in (".lock", ".toml", ".txt", ".yaml", ".yml", ".sh")
        or path.name in ("Makefile", "Dockerfile", "run")
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if option.search(line)
    ]
    assert found == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    vague = [
        relative(path)
        for path in all_modules()
        if BANNED_NAMES & set(path.relative_to(ROOT).with_suffix("").parts)
    ]
    assert vague == []


def test_every_folder_with_shipped_code_is_a_package() -> None:
    folders = {path.parent for path in product_modules()}
    homes = {ROOT / root for root in SOURCE_ROOTS}
    missing = [
        relative(folder)
        for folder in sorted(folders - homes)
        if not (folder / "__init__.py").is_file()
    ]
    assert missing == []


def test_every_shipped_module_can_be_imported_and_drags_in_no_framework() -> None:
    """Imported in a fresh interpreter with warnings as errors, each on its own account."""
    names = [
        dotted(path)
        for path in product_modules()
        # A script that has the framework imports the latter.
        if path.stem != "__main__" and path.parent.name not in ("pytorch", "tensorflow")
    ]
    program = (
        "import importlib, json, sys\n"
        "failed = {}\n"
        "for name in json.load(sys.stdin):\n"
        "    try:\n"
        "        importlib.import_module(name)\n"
        "    except BaseException as error:\n"
        "        failed[name] = f'{type(error).__name__}: {error}'\n"
        "frameworks = [m for m in ('tensorflow', 'keras', 'torch') if m in sys.modules]\n"
        "print(json.dumps([failed, frameworks]))\n"
    )
    paths = ":".join(str(ROOT / root) for root in SOURCE_ROOTS)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        input=json.dumps(names),
        capture_output=True,
        text=True,
        env={"PYTHONPATH": paths, "PATH": "/usr/bin:/bin"},
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    failed, frameworks = json.loads(done.stdout)
    assert failed == {}
    assert frameworks == []
