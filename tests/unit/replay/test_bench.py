"""Replays as rows, DataFrames and pictures, as a notebook takes them from ``bench``."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from reshape_gpu import bench
from tests.support.replay_bed import reshape

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def found() -> bench.Replays:
    return bench.replay("two", policies=["default", "adaptive"], seeds=2, jobs=4)


class Frame(list[dict[str, Any]]):
    """Stands for pandas.DataFrame."""


def test_a_replay_gives_a_row_for_each_policy_and_seed_and_for_each_job(
    found: bench.Replays,
) -> None:
    metrics = found.rows("metrics")
    assert [(row["policy"], row["seed"]) for row in metrics] == [
        ("default", 0),
        ("default", 1),
        ("adaptive", 0),
        ("adaptive", 1),
    ]
    assert len(found.rows("jobs")) == 4 * 4
    assert {row["seed"] for row in found.rows("events")} == {0}
    assert max(row["allocated"] for row in found.rows("course")) > 0


def test_the_rows_are_those_of_the_command(found: bench.Replays, tmp_path: Path) -> None:
    words = ("compare", "-w", "two", "--jobs", "4", "--seeds", "2", "--workers", "1")
    ran = reshape(*words, "--policies", "default,adaptive", "--out", str(tmp_path / "of-command"))
    assert ran.exit_code == 0, ran.output
    found.to_csv(tmp_path / "made")
    for name in ("jobs.csv", "events.csv"):
        assert (tmp_path / "made" / name).read_text() == (
            tmp_path / "of-command" / name
        ).read_text()


def test_rows_become_data_frames_if_pandas_is_there(
    found: bench.Replays, monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas = ModuleType("pandas")
    vars(pandas)["DataFrame"] = Frame
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    for name in ("metrics", "jobs", "events", "course"):
        frame = getattr(found, name)
        assert isinstance(frame, Frame)
        assert frame == found.rows(name)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(bench.BenchError, match=r"pip install pandas, or use rows\(\)"):
        _ = found.metrics


def test_figures_are_pictures_that_a_notebook_shows(found: bench.Replays, tmp_path: Path) -> None:
    for number in bench.FIGURES:
        picture = found.figure(number)
        assert picture._repr_svg_().lstrip().startswith("<?xml"), number
    picture.save(tmp_path / "eleven.svg")
    assert (tmp_path / "eleven.svg").read_text() == picture.svg
    with pytest.raises(bench.BenchError, match="no figure has the number 5; use one of 6, 7"):
        found.figure(5)


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"policies": ["best"]}, "unknown preset 'best'"),
        ({"policies": []}, "at least a policy and a seed"),
        ({"seeds": 0}, "at least a policy and a seed"),
        ({"cluster": "many"}, "is not a host"),
        ({"costs": "free"}, "unknown set of costs 'free'"),
        ({"sizes": [0]}, "is not a list of GPU counts"),
        ({"seeds": [-1]}, "'-1--1' is not a list of at most"),
        ({"seeds": [3, 3]}, "'3,3' is not a list of at most"),
        ({"spread": 5}, "spread is 5, and must be a number from 0 to 0.9"),
        ({"workers": 0}, "workers is 0; give 1 or more"),
        ({"load": 0.0}, "is not a list of different loads"),
        ({"load": 1.0, "last": -1.0}, "--last is -1 s, which is out of range"),
    ],
)
def test_what_cannot_be_replayed_is_said_with_a_remedy(more: dict[str, Any], what: str) -> None:
    with pytest.raises(bench.BenchError, match=what):
        bench.replay("two", **more)
    with pytest.raises(bench.BenchError, match="cannot be read"):
        bench.replay("nothing.csv")


def test_an_error_has_its_remedy_and_no_words_of_the_command_line() -> None:
    with pytest.raises(bench.BenchError) as error:
        bench.replay("two", policies="best")
    assert str(error.value).startswith("unknown preset 'best'; use one of: adaptive")
    assert "\n" not in str(error.value)
    assert "--policy" not in str(error.value)


def test_policies_and_seeds_may_be_written_as_on_the_command_line(found: bench.Replays) -> None:
    again = bench.replay("two", policies="default,adaptive", seeds="0-1", jobs=4)
    assert again.rows("metrics") == found.rows("metrics")
    (only,) = bench.replay("two", policies="adaptive", seeds=[1], jobs=4).rows("metrics")
    assert only == found.rows("metrics")[-1]


def test_a_load_lets_jobs_come_as_much_faster() -> None:
    found = bench.replay("two", policies="adaptive", jobs=4, last=8000.0, load=2.0)
    assert max(job["submitted_s"] for job in found.rows("jobs")) == pytest.approx(4000, abs=1)


def test_rows_that_are_not_there_are_named(found: bench.Replays) -> None:
    with pytest.raises(bench.BenchError, match="no rows are called 'steps'; use metrics, jobs"):
        found.rows("steps")


def test_parquet_without_pyarrow_names_the_remedy(
    found: bench.Replays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(bench.BenchError, match=r"pip install pyarrow, or use to_csv\(\)"):
        found.to_parquet(tmp_path)


def test_the_example_of_the_document_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs" / "replay.md").read_text()
    code = text.split("```python\n")[1].split("```")[0]
    pandas = ModuleType("pandas")
    vars(pandas)["DataFrame"] = Frame
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/replay.md", "exec"), {})
    assert (tmp_path / "pending.svg").exists()
    assert "adaptive" in capsys.readouterr().out
