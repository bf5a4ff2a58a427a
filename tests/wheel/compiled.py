"""Tries the compiled wheel where nothing else is, beside the usual one.

    python -m tests.wheel.compiled WHEEL

Does: looks into the wheel that ``make compiled`` left in ``dist``, imports it without any
dependency, and compares a replay by its installed command with one of the pure wheel. Needs pip
with a package index. Never: compiles, or touches the environment that runs it.
State: one temporary folder.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from tests.compiled.plugin import modules, names
from tests.wheel.check import (
    Trial,
    Wrong,
    away,
    build,
    constraints,
    environment,
    run,
    tried,
    wanted_files,
)

LIBRARY = "reshape__mypyc"
PACKAGES = ("reshape_controller", "reshape_profiles", "reshape_sidecar")
"""Those in which something is compiled."""
BARE = ("reshape_sidecar.wire", "reshape_sidecar.codec", "reshape_controller.core.engine")
REPLAY = ("replay", "--workload", "one", "--jobs", "30", "-o", "json")


def contents(trial: Trial) -> str:
    """The files of the pure wheel, and beside each compiled module its library."""
    tag = trial.wheel.stem.split("-", 2)[2]
    if tag.endswith("-any"):
        raise Wrong(f"the tag {tag} is that of a pure wheel")
    with zipfile.ZipFile(trial.wheel) as archive:
        inside = [name for name in archive.namelist() if ".dist-info/" not in name]
        stems = {name.split(".")[0] for name in inside if name.endswith(".so")}
    if len(inside) != len(set(inside)):
        raise Wrong("a file is in the wheel twice")
    dressing = {f"{package}/_dressing" for package in PACKAGES}
    compiled = {name.replace(".", "/") for name in names()} | dressing
    if stems != compiled | {LIBRARY}:
        raise Wrong(f"compiled is {sorted(stems ^ compiled)} too much or too little")
    texts = {name for name in inside if not name.endswith(".so")}
    wanted = wanted_files() | {f"{name}.py" for name in dressing}
    if texts != wanted:
        raise Wrong(f"missing, or too much: {sorted(texts ^ wanted)}")
    return f"{tag}: {len(modules())} modules, {trial.wheel.stat().st_size // 1024} KiB"


def bare(trial: Trial) -> str:
    """Without any dependency it imports, compiled, with warnings as errors."""
    bin_folder = environment(trial, "bare", "--no-deps", str(trial.wheel))
    program = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    print(importlib.import_module(name).__file__)"
    )
    files = away(trial, bin_folder, "python", "-I", "-W", "error", "-c", program, *names(), *BARE)
    wrong = [line for line in files.splitlines()[: len(names())] if not line.endswith(".so")]
    if wrong:
        raise Wrong(f"not compiled: {wrong}")
    return f"{len(names())} compiled modules on the standard library alone"


def command(trial: Trial) -> str:
    """A replay by the installed command gives what it gives with the pure wheel."""
    pins = str(constraints(trial.folder))
    bin_folder = environment(trial, "whole", "-c", pins, str(trial.wheel))
    is_compiled = "from reshape_controller import compiled; print(compiled.text())"
    if away(trial, bin_folder, "python", "-I", "-c", is_compiled).strip() != "compiled":
        raise Wrong("what is installed is not compiled")
    compiled = away(trial, bin_folder, "reshape", *REPLAY)
    pure = build(trial.folder).wheel
    again = ("-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", pure)
    run(bin_folder / "python", *again, cwd=trial.folder)
    if away(trial, bin_folder, "python", "-I", "-c", is_compiled).strip() != "interpreted":
        raise Wrong("the pure wheel is not interpreted")
    if away(trial, bin_folder, "reshape", *REPLAY) != compiled:
        raise Wrong(f"`reshape {' '.join(REPLAY)}` differs between the two wheels")
    return f"`reshape {' '.join(REPLAY)}` says the same, compiled or not"


PARTS: tuple[Callable[[Trial], str], ...] = (contents, bare, command)


def main() -> int:
    """Run every part, say how each went, and fail if one failed."""
    os.environ["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    given = sys.argv[1:]
    if len(given) != 1 or not Path(given[0]).is_file():
        print(f"FAILED  one wheel is needed, not {given}; run make compiled")
        return 1
    with tempfile.TemporaryDirectory(prefix="reshape-wheel-") as name:
        return tried(Trial(Path(given[0]).resolve(), Path(name)), PARTS)


if __name__ == "__main__":
    sys.exit(main())
