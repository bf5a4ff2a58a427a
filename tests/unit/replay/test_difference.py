"""What differs between two bundles, and what one seed cannot say."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from reshape_controller.cli.replays.tables import differences
from reshape_controller.replay.difference import difference
from reshape_controller.replay.inputs import ReplayError


def bundle(folder: Path, seeds: list[int], low: float, high: float) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"seeds": seeds}))
    found = {"median": (low + high) / 2, "low": low, "high": high}
    (folder / "summary.json").write_text(json.dumps({"summary": {"ours": {"makespan_s": found}}}))
    return folder


def test_a_difference_is_clear_where_the_intervals_do_not_overlap(tmp_path: Path) -> None:
    first = bundle(tmp_path / "first", [0, 1, 2], 90.0, 110.0)
    (same,) = difference(first, bundle(tmp_path / "near", [0, 1, 2], 105.0, 125.0)).metrics
    (other,) = difference(first, bundle(tmp_path / "far", [0, 1, 2], 115.0, 135.0)).metrics
    assert (same.clear, other.clear) == (False, True)
    assert other.ratio == 0.25


def test_whether_a_difference_of_single_seeds_is_clear_is_not_said(tmp_path: Path) -> None:
    first = bundle(tmp_path / "first", [0], 100.0, 100.0)
    second = bundle(tmp_path / "second", [0], 101.0, 101.0)
    (found,) = difference(first, second).metrics
    assert found.clear is None


def test_what_one_of_the_two_alone_has_is_named(tmp_path: Path) -> None:
    first = bundle(tmp_path / "first", [0, 1], 1.0, 2.0)
    second = bundle(tmp_path / "second", [0, 1], 1.0, 2.0)
    summary = json.loads((first / "summary.json").read_text())["summary"]
    own = summary["ours"] | {"moves": summary["ours"]["makespan_s"]}
    (first / "summary.json").write_text(json.dumps({"summary": {"ours": own, "default": {}}}))
    found = difference(first, second)
    assert (found.only_first, found.only_second) == (("default", "ours: moves"), ())
    shown = Console(width=200, record=True, file=StringIO())
    shown.print(differences(found))
    assert f"only in {first}: default, ours: moves" in shown.export_text()


def test_the_folder_of_one_replay_is_told_as_such(tmp_path: Path) -> None:
    first = bundle(tmp_path / "first", [0], 100.0, 100.0)
    (first / "summary.json").write_text(json.dumps({"policy": "adaptive", "makespan_s": 7.0}))
    with pytest.raises(ReplayError, match="one replay and no comparison"):
        difference(first, first)


@pytest.mark.parametrize(
    ("config", "summary"),
    [("[]", "{}"), ("{}", "null"), ("{}", '{"summary": null}'), ("{}", '{"summary": {"a": 1}}')],
)
def test_what_no_comparison_wrote_is_told_as_such(
    config: str, summary: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "summary.json").write_text(summary)
    with pytest.raises(ReplayError, match="reshape compare --out FOLDER"):
        difference(tmp_path, tmp_path)


def test_of_a_folder_of_all_workloads_one_is_to_be_named(tmp_path: Path) -> None:
    one = bundle(tmp_path / "one", [0], 1.0, 2.0)
    with pytest.raises(ReplayError, match=f"give one of their workloads: {one}"):
        difference(tmp_path, tmp_path)
