"""A pytest plugin: what is tested is the compiled code, or nothing is.

Does: ends a run in which a module that should be compiled is not, or comes from elsewhere.
Never: changes a test. State: none. ``make test-compiled`` loads it.
"""

from __future__ import annotations

import importlib
import os
import tomllib
from pathlib import Path

import pytest

from native.staging import compiled_modules

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WHEEL = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
HOOK = WHEEL["hooks"]["custom"]


def modules() -> list[Path]:
    """The files that pyproject.toml has compiled."""
    return compiled_modules(ROOT, HOOK["compiled"], HOOK["not-compiled"])


def names() -> list[str]:
    """Their import names."""
    inside = (path.relative_to(ROOT).with_suffix("").parts[1:] for path in modules())
    return [".".join(parts) for parts in inside]


def pytest_sessionstart(session: pytest.Session) -> None:
    home = Path(os.environ["PYTHONPATH"])
    for name in names():
        found = Path(str(importlib.import_module(name).__file__))
        if found.suffix != ".so" or not found.is_relative_to(home):
            raise pytest.UsageError(f"{name} is {found}, and not compiled; run make test-compiled")


def pytest_report_header() -> str:
    return f"compiled: all {len(names())} modules, of {os.environ['PYTHONPATH']}"
