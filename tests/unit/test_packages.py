"""What is installed: the locks agree, and documents name packages that the index has.

Does: reads pyproject.toml, both locks, the documents, and the remedies in the code. Never: asks an
index; tests/wheel/check.py does.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.docs_commands import documents

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ON_THE_INDEX = {
    *("ansible-core", "ansible-runner", "kubernetes", "matplotlib", "nvidia-ml-py"),
    *("pandas", "pyarrow", "tensorflow-cpu", "torch", "tornado"),
}
"""Packages that documents and remedies may name. Look at the index before you add a name."""
OPTIONS_WITH_VALUE = {"-r", "-c", "--target", "--requirement", "--constraint"}
_INSTALL = re.compile(r"pip install (.+?)(?:[`#;]|, |\\n|$)", re.MULTILINE)


def pins(name: str) -> dict[str, str]:
    """Each package of a lock, with its version and hashes as the file has them."""
    text = re.sub(r"^ *#.*\n", "", (ROOT / name).read_text(), flags=re.MULTILINE)
    entries = re.findall(r"^([\w.-]+)(==.*(?:\n .*)*)", text, re.MULTILINE)
    return {canonicalize_name(package): rest for package, rest in entries}


def test_the_controllers_lock_is_a_part_of_the_whole_lock() -> None:
    part, whole = pins("requirements-controller.lock"), pins("requirements.lock")
    assert len(part) > 15
    assert {name: pin for name, pin in part.items() if whole.get(name) != pin} == {}


def test_the_controllers_lock_has_every_dependency_of_the_project_and_no_framework() -> None:
    names = {canonicalize_name(Requirement(one).name) for one in PROJECT["dependencies"]}
    part = pins("requirements-controller.lock")
    assert names - set(part) == set()
    assert {"tensorflow-cpu", "keras", "torch"} & set(part) == set()


def test_the_extras_of_older_commands_are_there_and_bring_nothing() -> None:
    extras = PROJECT["optional-dependencies"]
    assert (extras["controller"], extras["sidecar"]) == ([], [])


def unknown(text: str) -> list[str]:
    """What a `pip install` of this text names that is neither a path nor known to the index."""
    found = []
    for words in (match.split() for match in _INSTALL.findall(text)):
        options = {n for n, word in enumerate(words) if word.startswith("-")}
        values = {n + 1 for n in options if words[n] in OPTIONS_WITH_VALUE}
        names = (word.strip("\"'(),") for n, word in enumerate(words) if n not in options | values)
        found += [name for name in names if name not in ON_THE_INDEX and not is_path(name)]
    return found


def is_path(name: str) -> bool:
    return name.startswith((".", "/")) or name.endswith(".whl") or name in ("PATH", "WHEEL")


def test_every_pip_install_names_a_path_or_a_package_of_the_index() -> None:
    paths = [*documents(), *(ROOT / "examples").rglob("*.md"), ROOT / "deploy" / "Containerfile"]
    for folder in ("controller", "launcher", "sidecar"):
        paths += (ROOT / folder).rglob("*.py")
    found = {str(path.relative_to(ROOT)): unknown(path.read_text()) for path in paths}
    assert {path: names for path, names in found.items() if names} == {}


def test_a_package_that_the_index_does_not_have_is_found() -> None:
    assert unknown("Run `pip install reshape-gpu`.") == ["reshape-gpu"]
    assert unknown('pip install "reshape-gpu[kubernetes]" tornado\n') == ["reshape-gpu[kubernetes]"]
    paths = "pip install --target out/image '.[kubernetes]'\npip install dist/reshape-*.whl  # it\n"
    assert unknown(paths) == []
