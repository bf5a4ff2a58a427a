"""The run on a GPU machine (benchmarks/gpu), for tests: on the import path, and as a module."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
RUN = ROOT / "benchmarks" / "gpu"
if str(RUN.parent) not in sys.path:
    sys.path.append(str(RUN.parent))


def load() -> ModuleType:
    """Return the program itself, to be called here; each call returns another."""
    spec = importlib.util.spec_from_file_location("gpu_run", RUN / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_run"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module
