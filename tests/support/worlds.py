"""Compares what the scripts world.py and world_torch.py print of the world that they find."""

from __future__ import annotations

import json
from typing import Any


def worlds(output: str) -> dict[str, Any]:
    """What a script printed, by part, without what is the zygote's own."""
    found = {}
    for line in output.splitlines():
        if line.startswith("WORLD "):
            _, part, text = line.split(" ", 2)
            found[part] = json.loads(text)
    for world in found.values():
        if "modules" in world:
            world["modules"] = [
                name for name in world["modules"] if not name.startswith("_reshape_hook")
            ]
        if "finders" in world:
            world["finders"] = [name for name in world["finders"] if name != "ImportReplay"]
    del found["before"]["loggers"]  # they are there, without a record in them
    return found


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Fail at the first item in which the two differ."""
    assert one.keys() == other.keys()
    for part, items in other.items():
        if isinstance(items, dict):
            for item, value in items.items():
                got = one[part][item]
                assert got == value, f"{part}: {item}: {difference(got, value)}"
        else:
            assert one[part] == items


def assert_same_with_torch(one: dict[str, Any], other: dict[str, Any]) -> None:
    """The same for a fork with PyTorch and a cold start. The fork has more loggers: those of the
    optimizers' module come later in a cold start, and are there without a record in them."""
    assert len(one["imports"]["modules"]) > 1000
    of_fork, of_cold = one["imports"]["loggers"], other["imports"]["loggers"]
    loggers = {name: logger for name, logger in of_fork.items() if name in of_cold}
    assert_same({**one, "imports": {**one["imports"], "loggers": loggers}}, other)


def difference(got: Any, wanted: Any) -> str:
    """What only one of the two has, if they are lists of texts."""
    if not isinstance(got, list) or not isinstance(wanted, list):
        return ""
    one, other = set(map(str, got)), set(map(str, wanted))
    return f"{sorted(one - other)} instead of {sorted(other - one)}"
