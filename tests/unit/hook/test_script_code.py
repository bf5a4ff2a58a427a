"""Reading what a script's code names."""

from __future__ import annotations

from reshape_sidecar.hook import script_code


class Pair:
    def __init__(self, left: int, right: int) -> None:
        self.left = left
        first, second = left, right
        self.both = first + second


def test_each_step_names_one_local_variable_on_every_python() -> None:
    found = [
        (step.opname, step.argval)
        for step in script_code.steps(Pair.__init__.__code__)
        if "FAST" in step.opname or step.opname == "STORE_ATTR"
    ]
    assert found == [
        ("LOAD_FAST", "left"),
        ("LOAD_FAST", "self"),
        ("STORE_ATTR", "left"),
        ("LOAD_FAST", "left"),
        ("LOAD_FAST", "right"),
        ("STORE_FAST", "second"),
        ("STORE_FAST", "first"),
        ("LOAD_FAST", "first"),
        ("LOAD_FAST", "second"),
        ("LOAD_FAST", "self"),
        ("STORE_ATTR", "both"),
    ]
