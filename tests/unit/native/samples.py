"""Original and translated classes side by side, executed without any compiler.

Does: executes a piece of source twice, as it is and translated. Never: compiles. State: none.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from native import dressing
from native.module import translate

HEAD = """\
from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

"""


def both(text: str, patch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Two modules: one of the text below the usual imports, one of its translation."""
    package = ModuleType("sample")
    package._dressing = dressing  # type: ignore[attr-defined]
    patch.setitem(sys.modules, "sample", package)
    found = []
    for name, source in (
        ("sample.original", HEAD + text),
        ("sample.translated", translate(HEAD + text, "sample/translated.py")),
    ):
        module = ModuleType(name)
        patch.setitem(sys.modules, name, module)
        exec(compile(source, name, "exec", dont_inherit=True), module.__dict__)
        found.append(module)
    return found[0], found[1]
