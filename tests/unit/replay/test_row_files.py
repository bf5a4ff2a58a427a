"""Jobs and events as CSV and Parquet, and what is said without pyarrow."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from reshape_controller.cli.exits import CliError
from reshape_controller.cli.replays import runs
from reshape_controller.replay import figures, row_files
from reshape_controller.replay.rows import Interval
from tests.support.replay_bed import reshape

ROWS = [{"policy": "adaptive", "seed": 0, "at_s": 1.5}, {"policy": "default", "seed": 0, "at_s": 2}]


class Arrow:
    """The parts of pyarrow that are called; keeps what was written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tables: dict[str, dict[str, list[object]]] = {}
        arrow, parquet = ModuleType("pyarrow"), ModuleType("pyarrow.parquet")
        vars(arrow)["table"] = lambda columns: columns
        vars(parquet)["write_table"] = self.write
        monkeypatch.setitem(sys.modules, "pyarrow", arrow)
        monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)

    def write(self, table: dict[str, list[object]], path: str) -> None:
        self.tables[Path(path).name] = table
        Path(path).write_bytes(b"PAR1")


def read(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


def test_rows_are_written_with_a_head_and_no_rows_give_an_empty_file(tmp_path: Path) -> None:
    row_files.write_csv(tmp_path / "rows.csv", ROWS)
    assert read(tmp_path / "rows.csv")[1] == {"policy": "default", "seed": "0", "at_s": "2"}
    row_files.write_csv(tmp_path / "none.csv", [])
    assert read(tmp_path / "none.csv") == []


def test_parquet_has_the_columns_of_the_csv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrow = Arrow(monkeypatch)
    row_files.write_parquet(tmp_path / "rows.parquet", ROWS)
    assert arrow.tables["rows.parquet"] == {
        "policy": ["adaptive", "default"],
        "seed": [0, 0],
        "at_s": [1.5, 2],
    }


def test_without_pyarrow_the_remedy_comes_before_any_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    words = ("replay", "-w", "two", "--jobs", "2", "--out", str(tmp_path / "out"), "--parquet")
    found = reshape(*words).exception
    assert isinstance(found, CliError)
    assert "pip install pyarrow" in found.text()
    assert not (tmp_path / "out" / "runs").exists()
    without = reshape(*words[:-3], "--parquet").exception
    assert isinstance(without, CliError)
    assert "add --out FOLDER" in without.text()


def test_a_bundle_has_the_events_of_its_first_seed_in_both_forms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrow = Arrow(monkeypatch)
    words = ("replay", "-w", "two", "--jobs", "3", "--seed", "4", "--out", str(tmp_path))
    found = reshape(*words, "--parquet")
    assert found.exit_code == 0, found.output
    events, jobs = read(tmp_path / "events.csv"), read(tmp_path / "jobs.csv")
    assert {row["seed"] for row in events} == {"4"}
    assert {row["job"] for row in jobs} <= {row["job"] for row in events}
    assert all(row["kind"] and row["at_s"] for row in events)
    assert len(arrow.tables["events.parquet"]["kind"]) == len(events)
    assert len(arrow.tables["jobs.parquet"]["job"]) == len(jobs) == 3


def test_a_figure_of_a_single_seed_has_no_caps_of_intervals(tmp_path: Path) -> None:
    def marks(low: float, high: float) -> int:
        metrics = ("makespan_s", "mean_jct_s", "lower_bound_makespan_s")
        summary = {name: Interval(4000.0, low, high) for name in metrics}
        figures.figure_6(tmp_path / "six", {"two": {"default": summary, "adaptive": summary}})
        return (tmp_path / "six.svg").read_text().count("LineCollection")

    assert marks(4000.0, 4000.0) == 1  # the lower bound
    assert marks(3000.0, 5000.0) > 1


def test_without_a_terminal_notes_tell_the_progress_and_the_time_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runs, "NOTE_EVERY_S", 0.0)
    words = ("compare", "-w", "two", "--jobs", "2", "--seeds", "3", "--workers", "1")
    found = reshape(*words, "--policies", "default")
    lines = [line for line in found.stderr.splitlines() if "replays; about" in line]
    assert [line.split(";")[0] for line in lines] == [
        "workload two: 1 of 3 replays",
        "workload two: 2 of 3 replays",
    ]
    assert all(re.search(r"about [0-9.]+s left", line) for line in lines)
