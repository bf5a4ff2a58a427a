"""Bundles: what is in the folder, and what two of them differ in."""

from __future__ import annotations

import csv
import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from reshape_controller.cli.exits import CliError
from reshape_controller.cli.replays.folder import locked_folder
from tests.support.replay_bed import reshape

FIGURES = (
    "figure-02",
    "figure-06",
    "figure-07",
    "figure-08",
    "figure-09",
    "figure-10",
    "figure-11",
)


def bundle(folder: Path, *more: str) -> Path:
    arguments = ["compare", "-w", "two", "--jobs", "5", "--seeds", "2", "--workers", "1"]
    policies = ["--policies", "adaptive,termination,default"]
    found = reshape(*arguments, *policies, "--out", str(folder), *more)
    assert found.exit_code == 0, found.output
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundle(tmp_path_factory.mktemp("bundle"))


def test_a_bundle_says_what_its_results_follow_from(made: Path) -> None:
    config = json.loads((made / "config.json").read_text())
    assert config["costs"]["set"] == "paper"
    assert "assumed" in config["costs"]["source"]
    assert config["policies"]["termination"] == "optimus+terminate"
    assert config["seeds"] == [0, 1]
    assert set(config["versions"]) >= {"python", "numpy", "scipy", "matplotlib"}
    assert len(config["inputs"]) == 16


def test_a_bundle_has_every_figure_as_svg_and_png(made: Path) -> None:
    for name in (*FIGURES, "table-08"):
        svg = (made / "figures" / f"{name}.svg").read_text()
        assert svg.lstrip().startswith("<?xml")
        assert (made / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "21.9 %" in (made / "figures" / "table-08.svg").read_text()


def test_the_same_replays_give_the_same_pictures(made: Path, tmp_path: Path) -> None:
    again = bundle(tmp_path)
    for path in sorted((made / "figures").glob("*.svg")):
        assert path.read_bytes() == (again / "figures" / path.name).read_bytes(), path.name


def test_jobs_events_decisions_and_course_can_be_read(made: Path) -> None:
    with (made / "jobs.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 3 * 2 * 5
    assert {row["policy"] for row in rows} == {"adaptive", "termination", "default"}
    for kind, key in (("events", "kind"), ("decisions", "reason_code"), ("course", "pending")):
        text = (made / kind / "adaptive-0.jsonl").read_text()
        entries = [json.loads(line) for line in text.splitlines()]
        assert entries
        assert all(key in entry for entry in entries)


def test_the_reshapes_of_the_jobs_are_those_of_their_replay(tmp_path: Path) -> None:
    words = ("replay", "--workload", "four", "--seed", "0", "--policy", "adaptive")
    found = reshape(*words, "--out", str(tmp_path), "-o", "json")
    metrics = json.loads(found.stdout)
    with (tmp_path / "jobs.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    for name in ("reshape_ups", "reshape_downs", "moves"):
        assert sum(int(row[name]) for row in rows) == metrics[name] > 0, name


def test_the_report_has_the_papers_figures_and_why_ours_differ(made: Path) -> None:
    text = (made / "report.md").read_text()
    assert "| two: makespan below default | 34 % |" in text
    assert "Why they differ" in text


def test_two_bundles_differ_in_what_was_changed(made: Path, tmp_path: Path) -> None:
    other = bundle(tmp_path, "--costs", "local")
    found = reshape("compare", str(made), str(other), "-o", "json")
    assert found.exit_code == 0, found.output
    document = json.loads(found.stdout)
    assert {"costs", "inputs"} == {name for name, _, _ in document["inputs"]}
    assert any(one["metric"] == "mean_wait_s" and one["ratio"] < 0 for one in document["metrics"])
    table = reshape("compare", str(made), str(other)).stdout
    assert "MAKESPAN" in table
    assert '"set": "paper"' in table
    assert '"set": "local"' in table
    assert reshape("compare", str(made), str(made)).stdout.count("+0.0%") > 5


def test_folders_that_are_no_bundles_are_named(made: Path, tmp_path: Path) -> None:
    found = reshape("compare", str(made), str(tmp_path))
    assert str(tmp_path / "config.json") in str(found.exception)
    assert "1 folder is given" in str(reshape("compare", str(made)).exception)


def test_a_folder_holds_what_one_comparison_wrote(made: Path, tmp_path: Path) -> None:
    """What a former one wrote of other policies would be taken for part of this one."""
    folder = tmp_path / "again"
    shutil.copytree(made, folder)
    (folder / "notes.txt").write_text("not ours")
    bundle(folder, "--policies", "optimus+sidecar,adaptive:gain=0.1+sidecar", "--costs", "local")
    for kind in ("events", "decisions", "course"):
        assert {path.name for path in (folder / kind).iterdir()} == {
            "optimus+sidecar-0.jsonl",
            "adaptive:gain=0.1+sidecar-0.jsonl",
        }
    assert "optimus+sidecar" in (folder / "figures" / "figure-10.svg").read_text()
    assert reshape("replay", "-w", "two", "--jobs", "2", "--out", str(folder)).exit_code == 0
    assert not (folder / "report.md").exists()
    assert (folder / "notes.txt").exists()


def test_what_a_former_command_wrote_of_other_workloads_is_gone(tmp_path: Path) -> None:
    few = ("--jobs", "2", "--seeds", "1", "--policies", "optimus+sidecar,paper+none")
    out = ("--out", str(tmp_path))

    def files() -> set[str]:
        return {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}

    assert reshape("compare", "-w", "one", "--sensitivity", *few, *out).exit_code == 0
    assert {"sensitivity.md", "sensitivity.json", "config.json"} <= files()
    assert "workload one on 8xV100+8xP100, costs paper" in (tmp_path / "sensitivity.md").read_text()
    assert reshape("compare", "-w", "two", *few, *out).exit_code == 0
    assert not files() & {"sensitivity.md", "sensitivity.json"}
    assert "figures/figure-07.svg" in files()
    assert reshape("compare", "-w", "all", *few, *out).exit_code == 0
    assert not files() & {"figures/figure-07.svg", "jobs.csv", "config.json"}
    assert not (tmp_path / "course").exists()
    shown = (tmp_path / "figures" / "figure-09.svg").read_text()
    assert "paper+none" in shown
    assert "termination" not in shown, "it was not compared"
    assert reshape("compare", "-w", "two", *few, *out).exit_code == 0
    assert not any(name.startswith(("one/figures", "one/config")) for name in files())


def test_table_8_and_the_report_say_nothing_of_what_was_not_compared(tmp_path: Path) -> None:
    made = bundle(tmp_path, "--policies", "adaptive,adaptive:gain=0.1+sidecar", "--seeds", "1")
    table = (made / "figures" / "table-08.svg").read_text()
    assert "adaptive:gain=0.1+sidecar" in table
    assert "termination, ours" not in table
    assert "adaptive:gain=0.1+sidecar" in (made / "figures" / "figure-07.svg").read_text()
    own = bundle(tmp_path, "--policies", "paper+none,optimus+sidecar", "--seeds", "1")
    assert "Beside the paper" not in (own / "report.md").read_text()


@pytest.mark.parametrize("policies", ["default", "optimus+sidecar"])
@pytest.mark.filterwarnings("error")
def test_figures_show_what_was_compared_whatever_it_is(policies: str, tmp_path: Path) -> None:
    bundle(tmp_path, "--policies", policies, "--seeds", "1")
    for name in sorted({*FIGURES} - {"figure-02"}):  # that one shows profiles
        assert policies in (tmp_path / "figures" / f"{name}.svg").read_text(), name


def test_the_report_names_costs_and_cluster_and_what_is_not_the_papers(tmp_path: Path) -> None:
    text = (bundle(tmp_path, "--costs", "local", "--sizes", "1,2") / "report.md").read_text()
    assert "On 8xV100+8xP100, costs `local`. Other than by default: the number of jobs, the" in text
    assert "the costs are those of its case study" not in text


def test_a_trace_is_not_set_beside_the_paper(made: Path, tmp_path: Path) -> None:
    words = ("compare", "-w", str(made / "trace.csv"), "--seeds", "1", "--policies", "adaptive")
    assert reshape(*words, "--out", str(tmp_path)).exit_code == 0
    text = (tmp_path / "report.md").read_text()
    assert "On 8xV100+8xP100, costs `paper`." in text
    assert "Beside the paper" not in text


@pytest.mark.parametrize("words", [["replay"], ["compare", "--seeds", "1"]])
def test_a_folder_takes_one_command_at_a_time(words: list[str], tmp_path: Path) -> None:
    with locked_folder(tmp_path):
        error = reshape(*words, "-w", "two", "--jobs", "2", "--out", str(tmp_path)).exception
    assert isinstance(error, CliError)
    (problem,) = error.problems
    assert problem.what == f"another command writes to this folder (pid {os.getpid()})"
    assert not (tmp_path / "runs").exists()
    assert reshape(*words, "-w", "two", "--jobs", "2", "--out", str(tmp_path)).exit_code == 0


def test_a_folder_that_is_a_file_is_told_before_anything_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    error = reshape("compare", "-w", "two", "--seeds", "1", "--out", str(path)).exception
    assert isinstance(error, CliError)
    assert str(path) in error.text()


@pytest.mark.parametrize("columns", ["60", "80", ""])
def test_no_table_of_replays_is_cut(
    columns: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = bundle(tmp_path, "--costs", "local", "--policies", "adaptive,default")
    monkeypatch.setenv("COLUMNS", columns)
    few = ("-w", "two", "--jobs", "3", "--seeds", "2", "--workers", "1")
    policies = ("--policies", "adaptive,termination,adaptive+terminate")
    for words in (
        ("compare", str(made), str(other)),
        ("compare", *few, *policies),
        ("compare", *few, *policies[:1], "adaptive,termination", "--sensitivity"),
        ("replay", "-w", "case-study"),
        ("replay", "-w", "three", "--jobs", "4", "--last", "800", "--hindsight"),
    ):
        printed = reshape(*words)
        assert printed.exit_code == 0, printed.output
        assert "…" not in printed.stdout, words
        assert "%" in printed.stdout or "RESHAPE" in printed.stdout or "633 s" in printed.stdout


def test_a_full_disk_leaves_no_half_replay_and_is_told_with_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Path.write_text

    def full(path: Path, text: str, *more: str, **options: str) -> int:
        write(path, "", encoding="utf-8")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    error = reshape("replay", "-w", "two", "--jobs", "2", "--out", str(tmp_path)).exception
    assert isinstance(error, CliError)
    assert f"{tmp_path}: No space left on device" in error.text()
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [".lock"]


def test_several_loads_have_a_folder_each_and_a_figure_and_a_table_of_all(tmp_path: Path) -> None:
    found = reshape(
        *("compare", "-w", "two", "--jobs", "4", "--seeds", "1", "--workers", "1"),
        *("--load", "0.5,2", "--policies", "adaptive,fifo+none", "--out", str(tmp_path)),
        *("-o", "json"),
    )
    assert found.exit_code == 0, found.output
    document = json.loads(found.stdout)
    assert [(one["workload"], one["load"]) for one in document["workloads"]] == [
        ("two@0.5", 0.5),
        ("two@2", 2.0),
    ]
    slow, fast = (one["summary"]["fifo+none"]["makespan_s"] for one in document["workloads"])
    assert fast["median"] < slow["median"], "the last job comes earlier"
    assert json.loads((tmp_path / "two@2" / "config.json").read_text())["load"] == 2.0
    assert "load (times as fast)" in (tmp_path / "figures" / "loads.svg").read_text()
    report = (tmp_path / "report.md").read_text()
    assert "## All workloads" in report
    assert "|  | two@0.5 | two@2 |" in report
