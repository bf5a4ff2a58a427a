"""The commands `workload convert` and `workload generate`: options, notes, formats, files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reshape_controller.cli.exits import CliError
from tests.support.replay_bed import reshape

HEAD = "id,at,gpus,seconds\n"
VGG = "vgg16-b64-imagenet"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def test_a_converted_trace_can_be_replayed_and_says_what_it_assumes(folder: Path) -> None:
    source, target = folder / "public.csv", folder / "jobs.csv"
    source.write_text(HEAD + "a,0,2,600\nb,60,1,900\nc,90,32,900\n")
    words = ["workload", "convert", str(source), "--submit", "at", "--gpus", "gpus"]
    words += ["--duration", "seconds", "--name", "id", "--out", str(target)]
    found = reshape(*words, "--window", "0d..1d", "--load", "0.5", "--cluster", "8xV100")
    assert found.exit_code == 0, found.output
    assert "assumed: durations" in found.stderr
    assert "left out: 1 row with more than 8 GPUs" in found.stderr
    assert "(33.33% of rows, 93.2" in found.stderr
    assert "load: 0.50 of 8 GPUs" in found.stderr
    assert found.stdout == ""
    again = reshape("replay", "-w", str(target), "-o", "json")
    assert again.exit_code == 0, again.output
    lines = reshape(*words[:-2], "--format", "jsonl")
    assert [json.loads(line)["name"] for line in lines.stdout.splitlines()] == ["a", "b"]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--window", "soon"], "'soon' is not a window"),
        (["--window", "a..b"], "the bound is 'a'; write seconds"),
        (["--rigid", "--sizes", "1,2"], "leave out one of the two"),
        (["--load", "0.5"], "add --cluster"),
        (["--cap", "--span", "any"], "leave out one of the two"),
        (["--hosts", "id"], "of use with --span only"),
        (["--load", "0.5", "--scale-load", "2"], "leave out one of the two"),
        (["--separator", "two"], "is not a character that can separate"),
        (["--map", "nothing"], "is not NAME=TYPE, and no file"),
        (["--gpus", "id"], "1 row cannot be read"),
        (["--cluster", "many"], "--cluster"),
        (["--head", "id,,at"], "has a column without a name"),
        (["--format", "jsonl", "--out", "jobs.csv"], "as csv, and --format asks for jsonl"),
        (["--format", "csv", "--out", "jobs.jsonl"], "name the file .csv"),
    ],
)
def test_options_that_cannot_be_met_are_refused(folder: Path, words: list[str], what: str) -> None:
    source = folder / "t.csv"
    source.write_text("id,submit_time,gpu_num,duration\na,0,1,60\n")
    found = reshape("workload", "convert", str(source), *words).exception
    assert isinstance(found, CliError)
    assert found.code == 2
    assert what in found.text()


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_jobs_larger_than_a_host_are_replayed_on_several(folder: Path, form: str) -> None:
    source, target = folder / "t.csv", folder / f"jobs.{form}"
    source.write_text("submit_time,gpu_num,duration\n0,16,600\n5,2,600\n")
    words = ["workload", "convert", str(source), "--span", "if-needed"]
    found = reshape(*words, "--out", str(target))
    assert found.exit_code == 0, found.output
    assert "jobs on several hosts: equal workers, at most 8 GPUs each (1 row" in found.stderr
    words = ["replay", "-w", str(target), "--cluster"]
    again = reshape(*words, "3*8xV100", "-o", "json")
    assert again.exit_code == 0, again.output
    metrics = json.loads(again.stdout)
    assert metrics["lower_bound_makespan_s"] <= metrics["makespan_s"]
    rigid = ["workload", "convert", str(source), "--span", "if-needed", "--rigid"]
    assert reshape(*rigid, "--out", str(target)).exit_code == 0
    alone = reshape(*words, "8xV100").exception
    assert isinstance(alone, CliError)
    assert "needs at least 16 GPUs of 2 equal workers" in alone.text()


def test_a_trace_is_never_overwritten_by_the_workload_made_of_it(folder: Path) -> None:
    source, link = folder / "t.csv", folder / "link.csv"
    text = "submit_time,gpu_num,duration\n0,1,60\n"
    source.write_text(text)
    link.symlink_to(source)
    for out in (source, link, folder / "." / "t.csv"):
        found = reshape("workload", "convert", str(source), "--out", str(out)).exception
        assert isinstance(found, CliError)
        assert "is the trace itself" in found.text()
    assert source.read_text() == text


@pytest.mark.parametrize("command", ["convert", "generate"])
def test_a_workload_has_the_format_that_replays_read_in_a_file_of_its_name(
    folder: Path, command: str
) -> None:
    source = folder / "t.csv"
    source.write_text("submit_time,gpu_num,duration\n0,1,60\n9,1,60\n")
    words = [str(source)] if command == "convert" else ["--jobs", "2"]
    for name in ("jobs.csv", "jobs.jsonl", "jobs"):
        out = folder / name
        assert reshape("workload", command, *words, "--out", str(out)).exit_code == 0
        assert out.read_text().startswith("{") == name.endswith("jsonl")
        again = reshape("replay", "-w", str(out), "-o", "json")
        assert again.exit_code == 0, again.output
    lines = reshape("workload", command, *words, "--format", "jsonl").stdout.splitlines()
    assert len([json.loads(line) for line in lines]) == 2


def test_a_map_is_a_file_of_pairs_or_a_pair(folder: Path) -> None:
    source, pairs = folder / "t.csv", folder / "map.csv"
    source.write_text("submit_time,gpu_num,duration,model\n0,1,60,bert\n1,1,60,gpt=2\n")
    pairs.write_text(f"bert,{VGG}\n")
    words = ["workload", "convert", str(source), "--model", "model", "--map", str(pairs)]
    found = reshape(*words, "--map", f"gpt=2={VGG}", "--format", "jsonl")
    assert found.exit_code == 0, found.output
    assert {json.loads(line)["job_type"] for line in found.stdout.splitlines()} == {VGG}


def test_a_bad_row_stops_no_file_and_is_in_the_summary(folder: Path) -> None:
    source = folder / "t.csv"
    source.write_text(HEAD + "a,0,2,600\nb,60,x,900\nc,90,32,900\nd,9999,1,60\n")
    words = ["workload", "convert", str(source), "--submit", "at", "--gpus", "gpus"]
    words += ["--duration", "seconds", "--name", "id"]
    found = reshape(*words, "--window", "0d..1h")
    assert found.exit_code == 0, found.output
    assert "read: 4 rows: 1 in 1 job, 1 left out, 1 not readable, 1 outside" in found.stderr
    assert "cannot be read: t.csv: line 3: gpus is 'x'" in found.stderr
    refused = reshape(*words, "--strict").exception
    assert isinstance(refused, CliError)
    assert "leave out --strict" in refused.text()


def test_a_time_zone_that_does_not_exist_is_refused(folder: Path) -> None:
    source = folder / "t.csv"
    source.write_text("submit_time,gpu_num,duration\n0,1,60\n")
    for name in ("Mars/Olympus", "../etc/passwd", ""):
        found = reshape("workload", "convert", str(source), "--time-zone", name).exception
        assert isinstance(found, CliError)
        assert "is no time zone" in found.text()
