"""There is one round: the live loop, replays and recovery leave the engine and policies to it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

CONTROLLER = Path(__file__).resolve().parents[2] / "controller" / "reshape_controller"
OWNERS = {
    "step": {"scheduling/rounds.py"},
    "apply": {"scheduling/planner.py", "scheduling/rounds.py"},
    "decide": {"scheduling/planner.py", "scheduling/rounds.py", "replay/hindsight.py"},
}
"""The files that may call a method of an engine, a planner or a policy. ``hindsight`` has a policy
that omits a plan of another."""
RECEIVERS = {"step": "engine", "apply": "engine", "decide": ""}
"""How the text of the value ends whose method it is."""


def callers(method: str) -> set[str]:
    """The files of the controller outside its core that call the method."""
    found = set()
    for path in CONTROLLER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            receiver = ast.unparse(node.func.value)
            if node.func.attr == method and receiver.endswith(RECEIVERS[method]):
                found.add(path.relative_to(CONTROLLER).as_posix())
    return {path for path in found if not path.startswith("core/")}


@pytest.mark.parametrize("method", OWNERS)
def test_only_the_round_steps_engines_applies_plans_and_asks_policies(method: str) -> None:
    assert callers(method) == OWNERS[method]
