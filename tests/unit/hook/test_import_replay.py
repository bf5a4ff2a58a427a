"""An import that is recorded and done again from the record is the import itself to the script."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reshape_sidecar.contract import ZYGOTE_GO
from reshape_sidecar.hook.fork_child import Connection
from reshape_sidecar.hook.import_world import Comparison, ImportWorld, read_by_imports
from tests.support.hook_bed import ROOT

MODULES = {
    "low.py": "import random, os\nDRAWN = random.getrandbits(32)\nos.environ['LOW'] = 'set'",
    "pack/__init__.py": "from . import inner\nimport low\npace = 'slow'",
    "pack/inner.py": "import warnings, atexit\n"
    "warnings.filterwarnings('ignore', 'inner')\natexit.register(print, 'inner ends')",
    "pack/extra.py": "import low",
    "pack/later.py": "import pack\npack.pace = 'fast'",
    "quiet.py": "import warnings\nwith warnings.catch_warnings():\n"
    "    warnings.filterwarnings('ignore', 'quiet')\n    import low",
    "asks.py": "import importlib.util\nTHERE = importlib.util.find_spec('low') is not None",
    "top.py": "import sys\nimport pack, pack.extra, low\nsys.modules['alias'] = low",
    "lazy/__init__.py": "import importlib, sys, types\n"
    "class Lazy(types.ModuleType):\n"
    "    def __getattr__(self, name):\n"
    "        if name != 'thing':\n"
    "            raise AttributeError(name)\n"
    "        self.thing = importlib.import_module('lazy.part').thing\n"
    "        return self.thing\n"
    "made = Lazy('lazy')\n"
    "made.__path__, made.__spec__ = __path__, __spec__\n"
    "sys.modules['lazy'] = made",
    "lazy/part.py": "import low\nthing = 'a thing'",
    "other.py": "import atexit, pack.inner\n"
    "atexit.register(lambda: print('other ends', pack.inner.__name__))",
}
PROGRAM = """
import atexit, json, os, random, sys, warnings
sys.path.insert(0, sys.argv[3])
from reshape_sidecar.hook.import_record import ImportRecorder, packed
from reshape_sidecar.hook.import_replay import ImportReplay, hide
from reshape_sidecar.hook.imports import ImportWatch

before = set(sys.modules)
if sys.argv[1] == "again":
    filters = list(warnings.filters)
    recorder = ImportRecorder()
    with recorder.recording():
        import asks, quiet, low, top, other
        recorder.import_later("pack.later", "pack")
        for name in ("lazy", "lazy:thing", "lazy:nothing", "nowhere"):
            recorder.import_name(name)
    lazy = recorder.empty_lazy_modules()
    del os.environ["LOW"]
    warnings.filters[:] = filters
    absent = hide([name for name in sys.modules if name not in before])
    ImportReplay(absent, packed(absent, recorder.modules), lazy=lazy).begin()
calls = []
watch = ImportWatch()
for name in ("low", "pack", "pack.extra", "lazy.part", "top"):
    watch.after(name, lambda module, name=name: calls.append([name, module.__name__]))
random.seed(3)
exec(sys.argv[2])
names = ("low", "pack", "pack.inner", "pack.extra", "pack.later", "top", "alias", "other", "quiet")
names += ("lazy", "lazy.part", "asks")
print(json.dumps({
    "calls": calls,
    "there": [name for name in names if name in sys.modules],
    "attributes": [name for name in ("inner", "extra") if hasattr(sys.modules.get("pack"), name)],
    "lazy": sorted(vars(sys.modules["lazy"])) if "lazy" in sys.modules else [],
    "pace": getattr(sys.modules.get("pack"), "pace", None),
    "environment": os.environ.get("LOW"),
    "drawn": random.random(),
    "filters": [str(one) for one in warnings.filters],
}))
"""
IMPORTS = (
    "pass",
    "import low",
    "import asks",
    "import asks, low",
    "import pack.extra",
    "from pack import inner",
    "import top",
    "import low; random.seed(4); import top",
    "import other, top",
    "import quiet",
    "import pack.later",
    "import lazy",
    "from lazy import thing",
    "import lazy.part; lazy.thing",
)


def run(mode: str, imports: str, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """What the program finds, and what its exit handlers print."""
    for name, text in MODULES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, mode, imports, str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "sidecar")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    return json.loads(first), rest


@pytest.mark.parametrize("imports", IMPORTS)
def test_an_import_from_the_record_is_the_import(tmp_path: Path, imports: str) -> None:
    again, ends_again = run("again", imports, tmp_path)
    once, ends_once = run("once", imports, tmp_path)
    assert again == once
    # Handlers of modules that are not imported run too: their libraries are there.
    assert set(ends_once) <= set(ends_again) == {"inner ends", "other ends pack.inner"}


def test_a_fork_runs_only_at_the_word_of_init() -> None:
    for word, goes in ((ZYGOTE_GO, True), (b"", False), (b"no\n", False)):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.sendall(word)
            ours.shutdown(socket.SHUT_WR)
            assert Connection(theirs).may_go() is goes
            assert json.loads(ours.recv(100)) == {"pid": os.getpid()}


def world(path: tuple[str, ...], **variables: str) -> ImportWorld:
    return ImportWorld(path, frozenset({"numpy", "queue"}), variables, frozenset({"TF2_BEHAVIOR"}))


def test_variables_that_an_import_reads_are_compared() -> None:
    comparison = Comparison(world(tuple(sys.path), TF_A="1"))
    same = {"TF_A": "1", "TF2_BEHAVIOR": "1", "TF_CONFIG": "{}", "HOME": "/h"}
    assert comparison.difference("numpy", same) is None
    found = comparison.difference("numpy", {"OMP_NUM_THREADS": "1"})
    assert found is not None
    assert found.variables == {"OMP_NUM_THREADS": "1", "TF_A": None}
    assert comparison.difference("queue", {"OMP_NUM_THREADS": "1"}) is None, "standard library"
    assert read_by_imports(same) == {"TF_A": "1", "TF2_BEHAVIOR": "1"}


def test_variables_of_libraries_are_compared_at_the_import_of_one() -> None:
    comparison = Comparison(world(tuple(sys.path), HF_HOME="/a"))
    assert comparison.difference("numpy", {}) is None, "a script may set it below this import"
    found = comparison.difference("transformers.trainer", {"TRANSFORMERS_VERBOSITY": "info"})
    assert found is not None
    assert found.variables == {"HF_HOME": None, "TRANSFORMERS_VERBOSITY": "info"}
    assert comparison.difference("huggingface_hub", {"HF_HOME": "/a"}) is None


def test_a_module_in_a_folder_of_the_script_is_noticed_and_a_plain_folder_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    comparison = Comparison(world(tuple(sys.path)))
    for name in ("plain", "own"):
        (tmp_path / name / "numpy").mkdir(parents=True)
        monkeypatch.syspath_prepend(str(tmp_path / name))
        if name == "own":
            (tmp_path / name / "numpy" / "__init__.py").touch()
        found = comparison.difference("numpy", {})
        assert (found is not None) is (name == "own")
    assert found is not None
    assert found.variables is None
    assert "own/numpy hides a module" in found.reason


def test_python_ends_with_nothing_frozen_that_a_library_would_print_as_a_leak() -> None:
    """Triton counts its objects at the end, and the zygote has frozen all objects."""
    program = (
        "import atexit, gc\n"
        "from reshape_sidecar.hook.import_record import Records\n"
        "from reshape_sidecar.hook.import_replay import ImportReplay\n"
        "atexit.register(lambda: print(gc.get_freeze_count()))\n"
        "gc.freeze()\n"
        "ImportReplay({}, Records('', {})).begin()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "0\n", done.stderr
