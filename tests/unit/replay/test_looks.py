"""Figures of policies that are not the paper's."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from reshape_controller.replay.figures import BOUND, figure_6
from reshape_controller.replay.looks import look, stroke
from reshape_controller.replay.rows import Interval

OWN = [
    "adaptive:gain=0.1,cool_down=3,max_wait_s=600+sidecar",
    "paper+none",
    "adaptive+terminate",
    "optimus+sidecar",
]


def test_no_two_of_the_policies_in_a_figure_look_alike() -> None:
    shown = ["adaptive", "paper", "termination", "default", *OWN]
    assert len({look(label, shown)[0] for label in shown}) == len(shown)
    assert len({str(stroke(label, shown)) for label in shown}) == len(shown)


def test_long_names_leave_room_for_the_panels(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = Interval(1000.0, 900.0, 1100.0)
    summary = {label: {"makespan_s": found, "mean_jct_s": found, BOUND: found} for label in OWN}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib gives a layout up with a warning
        figure_6(tmp_path / "figure", {"two": summary})
    assert OWN[0] in (tmp_path / "figure.svg").read_text()
