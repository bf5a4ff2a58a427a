"""The variables of the environment that a script sets above its imports, read from its text.

Does: finds ``os.environ["NAME"] = "text"`` and ``os.environ.setdefault("NAME", "text")`` on the
script's first level, so that the zygote imports the framework as the script will. It is a guess: at
the script's own import the hook compares, and starts cold if the guess was wrong.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

from reshape_sidecar import foreign
from reshape_sidecar.agent import environment
from reshape_sidecar.agent.spec import AttemptSpec
from reshape_sidecar.hook.import_world import read_by_imports

ENVIRONMENT = ("os.environ", "environ")


def after(spec: AttemptSpec, env: Mapping[str, str]) -> dict[str, str]:
    """Return ``env`` with those variables that the script sets and an import may read."""
    name = environment.script(spec)
    if name is None:
        return dict(env)
    try:
        tree = ast.parse(foreign.read(Path(spec.code) / name, foreign.SCRIPT_BYTES_MAX))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return dict(env)
    changed = dict(env)
    for statement in tree.body:
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
    return {**env, **read_by_imports(changed)}
