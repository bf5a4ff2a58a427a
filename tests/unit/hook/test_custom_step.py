"""Inspection of a script's own step without running it; the TensorFlow tier tests the rest."""

from __future__ import annotations

from types import FunctionType

from reshape_sidecar.hook import custom_step


def test_what_a_function_will_have_but_has_not_yet_is_left_out() -> None:
    def made() -> dict[str, object]:
        def step() -> tuple[int, int]:
            return now, later

        now = 1
        assert isinstance(step, FunctionType)
        found = custom_step._enclosed(step)
        later = 2
        assert step() == (1, 2)
        return found

    assert made() == {"now": 1}
