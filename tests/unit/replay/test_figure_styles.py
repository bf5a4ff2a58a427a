"""Figures of policies that are not the paper's."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from reshape_controller.replay.figure_styles import labels_in_figures, stroke, style_of
from reshape_controller.replay.figures import BOUND, figure_6, figure_9, table_8
from reshape_controller.replay.rows import Interval

OWN = [
    "adaptive:gain=0.1,cool_down=3,max_wait_s=600+sidecar",
    "paper+none",
    "adaptive+terminate",
    "optimus+sidecar",
]


def test_no_two_of_the_policies_in_a_figure_look_alike() -> None:
    shown = ["adaptive", "paper", "termination", "default", *OWN]
    assert len({style_of(label, shown)[0] for label in shown}) == len(shown)
    assert len({str(stroke(label, shown)) for label in shown}) == len(shown)


def test_many_policies_of_ones_own_look_different() -> None:
    shown = [f"adaptive:gain=0.{number}" for number in range(1, 10)]
    assert len({style_of(label, shown) for label in shown}) == len(shown)
    assert len({str(stroke(label, shown)) for label in shown}) == len(shown)


def test_what_is_compared_is_drawn_but_for_what_the_default_has_for_its_tables() -> None:
    beside = ["adaptive", "default", "adaptive+terminate", "adaptive:gain=0.1"]
    assert labels_in_figures(beside) == ["adaptive", "default", "adaptive:gain=0.1"]
    assert labels_in_figures(["optimus+sidecar", "paper+none"]) == ["optimus+sidecar", "paper+none"]


@pytest.mark.parametrize("name", ["bad$\\frac$.csv", "a$x^2$.csv", "of-last-winter-" * 6 + ".csv"])
def test_the_name_of_a_trace_is_written_and_no_formula(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = Interval(1000.0, 900.0, 1100.0)
    summary = {label: {"makespan_s": found, "mean_jct_s": found, BOUND: found} for label in OWN}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure_6(tmp_path / "figure-06", {name: summary})
        figure_9(tmp_path / "figure-09", {name: {OWN[0]: [1.0, 2.0]}})
        table_8(tmp_path / "table-08", [["adaptive, ours", "1 %"]], ["workload", name])
    for figure in ("figure-06", "figure-09", "table-08"):
        text = (tmp_path / f"{figure}.svg").read_text()
        assert (name if len(name) < 20 else "of-last-win…winter-.csv") in text


def test_long_names_leave_room_for_the_panels(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = Interval(1000.0, 900.0, 1100.0)
    summary = {label: {"makespan_s": found, "mean_jct_s": found, BOUND: found} for label in OWN}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib gives a layout up with a warning
        figure_6(tmp_path / "figure", {"two": summary})
    assert OWN[0] in (tmp_path / "figure.svg").read_text()
