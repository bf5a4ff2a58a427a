"""What a script does above its first step that a zygote can do before, read from the script's text.

Does: finds ``os.environ["NAME"] = "text"`` and ``os.environ.setdefault("NAME", "text")`` on the
script's first level, so that the zygote imports the framework as the script will; and what the
script takes from libraries on top of PyTorch. Both are guesses: at the script's own import the hook
compares variables, and starts cold if the guess was wrong; a library that is not imported stays out
of the script's sight.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

from reshape_sidecar import foreign
from reshape_sidecar.agent import environment
from reshape_sidecar.agent.spec import AttemptSpec
from reshape_sidecar.hook.import_world import LIBRARIES, read_by_imports, read_by_libraries
from reshape_sidecar.wire import Processes

ENVIRONMENT = ("os.environ", "environ")
NAMES_MAX = 64
"""Most names of libraries, which stand on the zygote's command line."""


def after(spec: AttemptSpec, env: Mapping[str, str]) -> dict[str, str]:
    """Return ``env`` with those variables that the script sets and an import may read."""
    changed = dict(env)
    for statement in _tree(spec).body:
        match statement:
            case ast.Assign([ast.Subscript(of, ast.Constant(str() as key))], ast.Constant(value)):
                if ast.unparse(of) in ENVIRONMENT and isinstance(value, str):
                    changed[key] = value
            case ast.Expr(
                ast.Call(
                    ast.Attribute(of, "setdefault"),
                    [ast.Constant(str() as key), ast.Constant(str() as value)],
                )
            ):
                if ast.unparse(of) in ENVIRONMENT:
                    changed.setdefault(key, value)
    return {**env, **read_by_imports(changed), **read_by_libraries(changed)}


def names_of_libraries(spec: AttemptSpec) -> tuple[str, ...]:
    """Return the modules of ``LIBRARIES`` that the script imports on its first level, and what it
    takes from them, as ``hook.zygote`` reads it; empty unless it has a process for each GPU."""
    if spec.processes is not Processes.PER_GPU:
        return ()
    tree, found = _tree(spec), set()
    aliases: dict[str, str] = {}
    for statement in tree.body:
        match statement:
            case ast.Import(names):
                for one in names:
                    found.add(one.name)
                    aliases[one.asname or one.name] = one.name
            case ast.ImportFrom(str() as module, names, 0):
                found.add(module)
                found |= {f"{module}:{one.name}" for one in names}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ast.Name(of), attribute) if of in aliases:
                found.add(f"{aliases[of]}:{attribute}")
    ours = (name for name in found if re.split(r"[.:]", name)[0] in LIBRARIES and name.isascii())
    return tuple(sorted(name for name in ours if name[-1] != "*")[-NAMES_MAX:])


def _tree(spec: AttemptSpec) -> ast.Module:
    """Return the script as a tree; an empty one if it cannot be read."""
    name = environment.script(spec)
    if name is None:
        return ast.Module([], [])
    try:
        return ast.parse(foreign.read(Path(spec.code) / name, foreign.SCRIPT_BYTES_MAX))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])
