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


class Counting:
    """Makes samples, and counts them."""

    served = 0
    file: object = None

    def counts(self) -> int:
        self.served += 1
        return self.served

    def opens(self) -> object:
        if self.file is None:
            self.file = object()
        return self.file


def test_a_count_is_told_from_what_is_made_once() -> None:
    functions = {one.__name__: one for one in script_code.methods(Counting)}
    assert script_code.counted_names(functions["counts"]) == {"served"}
    assert script_code.counted_names(functions["opens"]) == set()
