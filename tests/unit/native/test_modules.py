"""Every module that is compiled, translated and executed without a compiler.

Does: lays the packages into a folder as the build does, and compares what its values say of
themselves with what those of the sources say. Never: compiles; ``make test-compiled`` does the same
with the compiled code.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from native import staging
from native.module import translate
from tests.compiled.plugin import HOOK, ROOT, WHEEL, modules, names
from tests.unit.native import portrait
from tests.unit.native.samples import HEAD, both

PORTRAIT = Path(portrait.__file__)


def portraits(*homes: Path) -> list[str]:
    """What the classes in these folders say of themselves."""
    env = os.environ | {"PYTHONPATH": ":".join(map(str, homes)), "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-W", "error", str(PORTRAIT), *names()]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> staging.Staged:
    folder = tmp_path_factory.mktemp("staged")
    return staging.stage(ROOT, WHEEL["packages"], modules(), folder)


def test_every_value_is_what_it_was(staged: staging.Staged) -> None:
    before = portraits(*((ROOT / package).parent for package in WHEEL["packages"]))
    after = portraits(staged.folder)
    assert [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]] == []
    assert sum(line.startswith("class ") for line in before) > 80
    assert sum("value " in line for line in before) > 70


def test_no_dataclass_and_no_cached_property_is_left(staged: staging.Staged) -> None:
    for name in staged.compiled:
        tree = ast.parse((staged.folder / name).read_text())
        lists = [getattr(node, "decorator_list", []) for node in ast.walk(tree)]
        left = {ast.unparse(entry) for entries in lists for entry in entries}
        assert not left & {"dataclass", "cached_property"}, name


def test_what_is_not_compiled_is_as_it_was(staged: staging.Staged) -> None:
    for package in WHEEL["packages"]:
        home = (ROOT / package).parent
        for path in (ROOT / package).rglob("*.py"):
            name = path.relative_to(home).as_posix()
            if name not in staged.compiled:
                assert (staged.folder / name).read_bytes() == path.read_bytes(), name


def test_translated_modules_import_nothing_that_only_a_compiler_brings(
    staged: staging.Staged,
) -> None:
    for name in staged.compiled:
        assert not re.search(r"mypy_extensions|mypyc|librt", (staged.folder / name).read_text())


def test_the_same_sources_give_the_same_translation() -> None:
    """The mark of the code in a bundle of replays is a hash of the installed text."""
    for path in modules():
        text, name = path.read_text(), path.relative_to(ROOT).parts
        inside = "/".join(name[1:])
        assert translate(text, inside) == translate(text, inside)
        changed = text + "\nANOTHER = 1\n"
        assert translate(changed, inside) != translate(text, inside)


def test_what_makes_a_folder_a_package_is_not_compiled() -> None:
    assert [path for path in modules() if path.stem == "__init__"] == []
    assert len(modules()) > 40


def test_a_module_that_is_not_there_cannot_be_compiled() -> None:
    with pytest.raises(staging.UnknownModule, match=r"core/gone\.py is to be compiled"):
        staging.compiled_modules(ROOT, ["controller/reshape_controller/core/gone.py"], [])
    with pytest.raises(staging.UnknownModule, match=r"gone\.py is left out"):
        staging.compiled_modules(ROOT, HOOK["compiled"], ["gone.py"])


def test_what_the_build_needs_is_what_the_lock_has() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    missing = [pin for pin in HOOK["dependencies"] if f"\n{pin} \\" not in lock]
    assert missing == []


CONSTANTS = """
LEAST = 3
_ONE, _TWO = LEAST + 1, (LEAST +
    2)
PAIR = (1.5, 2.5)
CHANGES = 1
CHANGES = 2
lower = 4


def told() -> tuple[object, ...]:
    return LEAST, _ONE, _TWO, PAIR, CHANGES, lower
"""


def test_constants_are_marked_and_keep_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in both(CONSTANTS, monkeypatch):
        assert module.told() == (3, 4, 5, (1.5, 2.5), 2, 4)
    text = translate(HEAD + CONSTANTS, "sample/one.py")
    marked = [line.partition(":")[0] for line in text.splitlines() if ": _Final = " in line]
    assert marked == ["LEAST", "_ONE", "_TWO"]
