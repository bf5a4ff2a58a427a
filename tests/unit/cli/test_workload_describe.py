"""The command `workload describe`: of a trace and of a workload, as a table, JSON and a picture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.replay_bed import reshape

SACCT = Path(__file__).parents[3] / "examples" / "trace" / "sacct.txt"


def test_a_trace_is_described_without_a_conversion() -> None:
    found = reshape("workload", "describe", str(SACCT), "--elastic", "halve", "-o", "json")
    assert found.exit_code == 0, found.output
    document = json.loads(found.stdout)
    assert document["demand"]["jobs"] == 8
    assert document["demand"]["jobs_by_gpus"] == {"1": 3, "2": 2, "4": 2, "8": 1}
    hours = [1.5, 4 * 0.75, 2 * 2, 2 * 5 / 3, 8 * 28, 1 / 3, 1, 4 * 35 / 60]
    assert document["demand"]["gpu_hours"] == pytest.approx(sum(hours), rel=1e-3)
    assert "2026-03-02 08:00:00" in document["time_zone"]
    assert document["assumed"] == "elastic sizes are assumed for 5 of 8 jobs"
    assert document["elastic"]["none"] == {"elastic_jobs": 0, "fewest_gpus": 23, "most_gpus": 23}
    assert document["elastic"]["halve"]["fewest_gpus"] == 8


def test_a_workload_is_described_as_the_trace_that_it_was_made_of(tmp_path: Path) -> None:
    for name in ("jobs.csv", "jobs.jsonl"):
        out, picture = tmp_path / name, tmp_path / "load.svg"
        assert reshape("workload", "convert", str(SACCT), "--out", str(out)).exit_code == 0
        found = reshape("workload", "describe", str(out), "--picture", str(picture))
        assert found.exit_code == 0, found.output
        lines = found.stdout.splitlines()
        assert any(line.startswith("GPU hours") and line.endswith("239.5") for line in lines)
        assert "elastic sizes are assumed for 8 of 8 jobs" in found.stdout
        assert "jobs with several sizes        0      5     8" in lines
        assert any("█" in line or "#" in line for line in lines)
        assert picture.read_text().startswith("<?xml")


def test_a_comparison_says_how_many_sizes_are_assumed(tmp_path: Path) -> None:
    out, results = tmp_path / "jobs.csv", tmp_path / "results"
    words = ["workload", "convert", str(SACCT), "--out", str(out)]
    made = reshape(*words)
    assert "--elastic (here free): none 0 jobs with several sizes on 23 to 23 GPUs" in made.stderr
    compare = ["compare", "-w", str(out), "--cluster", "8xV100", "--policies", "default"]
    compare += ["--seeds", "1", "--workers", "1", "--out", str(results)]
    found = reshape(*compare)
    assert found.exit_code == 0, found.output
    what = "lastic sizes are assumed for 8 of 8 jobs"
    assert what in found.stderr
    assert what in (results / "report.md").read_text()
    assert reshape(*words, "--rigid").exit_code == 0
    assert "assumed" not in reshape("replay", "-w", str(out), "--cluster", "8xV100").stderr


def test_two_rules_for_sizes_are_refused() -> None:
    for other in (["--rigid"], ["--sizes", "1,2"]):
        found = reshape("workload", "convert", str(SACCT), "--elastic", "free", *other)
        assert "both say which GPU counts are assumed" in str(found.exception)
