"""The Python packages of pods: TensorFlow and what the SideCar needs, pinned by requirements.lock.

Does: installs wheels for the image's Python into a folder of the cache, once for each content of
the lock. Never: takes what a pod does not need (the whole lock is twice as large), or a package
whose hash the lock does not know. State: the cache folder.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
import sys
import tempfile
from pathlib import Path

from packaging.requirements import Requirement

from tests.kubernetes import layout
from tests.kubernetes.image import PYTHON_VERSION
from tests.kubernetes.running import ClusterError, run

WANTED = ("nvidia-ml-py", "tensorflow-cpu", "tornado")
CONTROLLER = (
    *("kubernetes", "numpy", "prometheus-client", "pydantic", "pymongo", "pyyaml", "rich"),
    *("scipy", "structlog", "tornado", "typer"),
)
"""What a controller in a pod needs."""
LOCK = Path(__file__).resolve().parents[2] / "requirements.lock"
INSTALL_S = 1800.0
_WHEELS = ("manylinux2014", "manylinux_2_17", "manylinux_2_27", "manylinux_2_28")
_SEPARATORS = re.compile(r"[-_.]+")


def folder(names: tuple[str, ...] = WANTED) -> Path:
    """The folder, filled if it is not there. Raises ClusterError."""
    wanted = requirements(names)
    digest = hashlib.sha256(wanted.encode()).hexdigest()[:16]
    target = layout.cache() / f"packages-{PYTHON_VERSION}-{digest}"
    if not target.exists():
        print(f"installing the packages of pods into {target} (a minute or two, once)", flush=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f"{target.name}.{os.getpid()}")
        try:
            _install(wanted, partial)
            partial.rename(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return target


def _install(wanted: str, target: Path) -> None:
    """Wheels alone, for the image's Python whatever this one is."""
    machine = platform.machine()
    wheels = [f"--platform={wheel}_{machine}" for wheel in _WHEELS]
    python = PYTHON_VERSION.replace(".", "")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(wanted)
        file.flush()
        run(
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--root-user-action=ignore", "--no-deps", "--require-hashes", "--only-binary=:all:"),
            *(f"--python-version={PYTHON_VERSION}", "--implementation=cp"),
            *(f"--abi=cp{python}", "--abi=abi3", "--abi=none", *wheels, "--platform=any"),
            *("--target", target, "-r", file.name),
            timeout_s=INSTALL_S,
        )


def requirements(names: tuple[str, ...] = WANTED) -> str:
    """The lock's entries of ``names`` and of all that these need, in the lock's own words."""
    entries = {}
    pins = re.sub(r"^ +#.*\n", "", LOCK.read_text(), flags=re.MULTILINE)  # who else needs it
    for entry in re.split(r"^(?=\S)", pins, flags=re.MULTILINE):
        name, found, _ = entry.partition("==")
        if found:
            entries[_normal(name)] = entry
    needed: set[str] = set()
    todo = [_normal(name) for name in names]
    while todo:
        name = todo.pop()
        if name in needed:
            continue
        if name not in entries:
            raise ClusterError(f"{LOCK.name} does not pin {name}; write it anew (CONTRIBUTING.md)")
        needed.add(name)
        todo += _needed_by(name)
    return "".join(entries[name] for name in sorted(needed))


def _needed_by(name: str) -> list[str]:
    found = [Requirement(text) for text in importlib.metadata.requires(name) or []]
    python = {"python_version": PYTHON_VERSION, "extra": ""}
    return [_normal(one.name) for one in found if one.marker is None or one.marker.evaluate(python)]


def _normal(name: str) -> str:
    return _SEPARATORS.sub("-", name.strip()).lower()
