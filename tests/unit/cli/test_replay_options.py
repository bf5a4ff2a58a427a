"""Options of replays that mean nothing together, or nothing at all, are refused and not ignored."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_controller.cli.exits import CliError, Exit
from reshape_controller.cli.replays import inputs
from reshape_controller.core.model import Mechanism
from reshape_controller.replay.inputs import ReplayError, cluster_of
from reshape_gpu.errors import Problem
from tests.support.replay_bed import reshape


def problem(*words: str) -> Problem:
    """The one problem that a command refuses its options for."""
    error = reshape(*words).exception
    assert isinstance(error, CliError)
    assert error.code is Exit.USAGE
    (found,) = error.problems
    return found


@pytest.mark.parametrize(
    ("words", "where"),
    [
        ("--from-live --jobs 3", "--jobs 3"),
        ("--from-live --hindsight", "--hindsight"),
        ("--from-live -w two", "--workload two"),
        ("--from-live --speed-up 3", "--speed-up 3.0"),
        ("--add-gpus 4", "--add-gpus 4"),
        ("--drain local --workload two", "--drain local"),
        ("--add-host 8xV100", "--add-host 8xV100"),
    ],
)
def test_what_a_replay_would_not_look_at_is_named_with_its_value(words: str, where: str) -> None:
    found = problem("replay", *words.split())
    assert found.where == where
    assert "--from-live" in found.remedy


def test_compare_takes_no_second_workload_instead_of_the_first() -> None:
    found = problem("compare", "--workload", "one", "-w", "two", "--seeds", "1", "--jobs", "1")
    assert found.where == "--workload one --workload two"
    assert "--workload all" in found.remedy


@pytest.mark.parametrize(
    ("words", "where", "remedy"),
    [
        ("replay --workload one -w two", "--workload one --workload two", "reshape compare"),
        ("replay -p adaptive -p default", "--policy adaptive --policy default", "--policies A,B"),
        ("workload generate -w one -w two", "--workload one --workload two", "a command for each"),
    ],
)
def test_of_two_the_last_is_not_taken_in_silence(words: str, where: str, remedy: str) -> None:
    found = problem(*words.split())
    assert found.where == where
    assert "appears 2 times" in found.what
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("words", "where"),
    [
        ("--policy adaptive", "--policy adaptive"),
        ("--seed 3", "--seed 3"),
        ("--cluster 4xV100", "--cluster 4xV100"),
        ("--costs paper", "--costs paper"),
        ("--hindsight", "--hindsight"),
        ("--parquet", "--parquet"),
        ("--live f", "--live f"),
    ],
)
def test_the_case_study_has_all_of_its_own(words: str, where: str) -> None:
    found = problem("replay", "--workload", "case-study", *words.split())
    assert found.where == where
    assert "the case study sets its jobs" in found.what
    assert found.remedy.startswith(f"leave out {words.split()[0]}")


@pytest.mark.parametrize("seconds", ["-1", "nan", "1e308"])
def test_a_time_that_can_be_no_seconds_is_refused(seconds: str) -> None:
    found = problem("replay", "--jobs", "3", "--last", seconds)
    assert found.where.startswith("--last")
    assert found.remedy == "give seconds from 0 to 1e+10"


@pytest.mark.parametrize(
    ("words", "where", "remedy"),
    [
        ("replay --speed-up 3", "--speed-up 3.0", "add --live FOLDER, or leave out --speed-up"),
        ("replay --hindsight --out f", "--out f", "leave out --out, or --hindsight"),
        ("replay --live f --hindsight", "--hindsight", "leave out --hindsight, or --live"),
        ("compare a b --seeds 3", "--seeds", "leave out --seeds, or the folders"),
        ("replay --spread 0.5 --device-truth f", "--spread 0.5", "leave out one of the two"),
        (
            "compare --sensitivity --load 0.5,2",
            "--sensitivity",
            "give one --workload, and one --load",
        ),
        ("compare --load 0", "--load", "for example 0.5,0.8,1.0,1.3"),
        ("compare --load 1,1.0", "--load", "for example 0.5,0.8,1.0,1.3"),
        (
            "compare --sensitivity --spread 0.9",
            "--sensitivity",
            "give a --spread of at most 0.72",
        ),
    ],
)
def test_what_goes_with_another_kind_of_run_is_not_ignored(
    words: str, where: str, remedy: str
) -> None:
    found = problem(*words.split())
    assert (found.where, found.remedy) == (where, remedy)


def test_nothing_of_a_world_that_follows_a_device_truth_can_be_assumed_otherwise(
    tmp_path: Path,
) -> None:
    path = tmp_path / "truth.json"
    path.write_text('{"seconds_per_step": {}}')
    trace = tmp_path / "jobs.csv"
    trace.write_text("submit_s,job_type,steps\n0,lenet-b1024-mnist,5\n")
    words = ("compare", "-w", str(trace), "--sensitivity", "--device-truth", str(path))
    assert problem(*words).remedy == "leave out --device-truth"


def test_the_commas_of_a_policys_settings_are_none_between_policies() -> None:
    text = "adaptive:gain=0.1,max_wait_s=600+sidecar, default,paper+terminate"
    labels = inputs.labels_of(text)
    assert labels == ("adaptive:gain=0.1,max_wait_s=600+sidecar", "default", "paper+terminate")
    assert inputs.contender(labels[0]).policy.name == "adaptive:gain=0.1,max_wait_s=600"
    text = "default:sizes=largest,paper+terminate,adaptive:gain=0.1, cool_down=3"
    labels = inputs.labels_of(text)
    assert labels == ("default:sizes=largest", "paper+terminate", "adaptive:gain=0.1,cool_down=3")


@pytest.mark.parametrize(("cluster", "told"), [("8xA100", True), ("8xV100", False)])
def test_speeds_that_nobody_recorded_are_said_to_be_taken_from_others(
    cluster: str, told: bool
) -> None:
    found = reshape("replay", "-w", "two", "--jobs", "2", "--cluster", cluster)
    assert found.exit_code == 0, found.output
    assert ("on A100: assumed as fast as the slowest GPU type" in found.stderr) is told


def test_a_step_of_a_live_run_has_an_end() -> None:
    found = reshape("replay", "--live", "f", "--step", "inf")
    assert found.exit_code == 2
    assert "--step" in found.stderr


@pytest.mark.parametrize("command", ["replay", "compare"])
@pytest.mark.parametrize("option", ["--workload", "--cluster", "--policy"])
def test_an_option_without_a_value_is_not_taken_for_the_default(command: str, option: str) -> None:
    flag = "--policies" if (command, option) == ("compare", "--policy") else option
    assert "''" in str(problem(command, "--jobs", "1", f"{flag}="))


def test_a_workload_that_is_not_there_names_those_that_are() -> None:
    found = problem("replay", "--workload", "five")
    assert found.where == "--workload five"
    assert "one, two, three, four" in found.remedy


def test_a_long_seed_is_shown_with_all_its_digits() -> None:
    found = reshape("replay", "-w", "two", "--jobs", "1", "--seed", "20261123")
    assert "20261123" in found.stdout


def test_of_a_target_that_is_never_reached_the_reachable_ones_are_told(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    row = "0,resnet18-b64-imagenet,0.99"
    trace.write_text(f"submit_s,job_type,target_accuracy\n{row}\n", encoding="utf-8")
    found = problem("replay", "--workload", str(trace))
    assert "never reaches a target_accuracy of 0.99" in found.what
    assert "stays below 0.8706" in found.what


def test_of_jobs_that_fit_on_no_host_the_least_size_is_told() -> None:
    found = problem("replay", "--sizes", "3,5", "--cluster", "2xV100")
    assert "needs at least 3 GPUs of one host" in found.what


def test_converted_jobs_have_no_more_gpus_than_a_replay_takes() -> None:
    found = reshape("workload", "convert", "trace.csv", "--largest", "2048")
    assert found.exit_code == 2
    assert "--largest" in found.stderr


def live_of(folder: Path, *words: str) -> Problem:
    """What a live run in ``folder`` is refused for."""
    costs = folder.parent / "costs.toml"
    names = ("job_init_s", "process_init_s", "checkpoint_s", "process_stop_s", "job_stop_s")
    costs.write_text("\n".join(["[costs.here]", *(f"{name} = 1.0" for name in names)]))
    return problem("replay", "--live", str(folder), "--costs", str(costs), *words)


@pytest.mark.parametrize("costs", ["paper", "local"])
def test_a_live_run_is_not_judged_by_what_other_processes_cost(costs: str, tmp_path: Path) -> None:
    found = problem("replay", "--live", str(tmp_path / "live"), "--costs", costs)
    assert found.where == f"--costs {costs}"
    assert found.remedy.startswith("measure them: reshape profile costs")


def test_a_folder_with_files_of_somebody_else_is_not_written_to(tmp_path: Path) -> None:
    """They have the names of ours, and are not ours."""
    mine = {"config.json": "{}", "report.md": "notes", "jobs.csv": "submit_s\n"}
    for name, text in mine.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    for command in ("replay", "compare"):
        found = problem(command, "-w", "two", "--jobs", "2", "--out", str(tmp_path))
        assert (found.where, found.remedy[:10]) == (f"--out {tmp_path}", "give a new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == mine


def test_a_trace_is_not_read_where_results_are_written(tmp_path: Path) -> None:
    out = tmp_path / "out"
    once = ("replay", "-w", "two", "--jobs", "2", "--out", str(out))
    assert reshape(*once).exit_code == 0
    trace = out / "jobs.csv"
    row = "submit_s,job_type,steps\n0,resnet18-b64-imagenet,9\n"
    trace.write_text(row, encoding="utf-8")
    found = problem("replay", "-w", str(trace), "--out", str(out))
    assert "is in the folder for results" in found.what
    assert trace.read_text() == row


@pytest.mark.parametrize("gpu_type", ["1080Ti", "2080-Ti", "3090x"])
def test_a_gpu_type_may_begin_with_a_digit(gpu_type: str) -> None:
    (host,) = cluster_of(f"4x{gpu_type}").hosts
    assert (host.gpus, host.gpu_type) == (4, gpu_type)


@pytest.mark.parametrize("text", ["8x8xV100", "4x1080", "4x-V100"])
def test_what_is_no_gpu_type_is_refused(text: str) -> None:
    with pytest.raises(ReplayError, match="is not a host"):
        cluster_of(text)


def test_a_preset_takes_options_and_keeps_its_mechanism() -> None:
    assert inputs.contender("default:sizes=largest").mechanism is Mechanism.NONE
    found = problem("compare", "--policies", "adaptive,adaptive:gain=x", "--jobs", "2")
    assert found.where == "--policies adaptive:gain=x"
    assert "'adaptive:gain=x'" in found.what
    assert "its options: " in found.what


def test_a_job_that_a_controller_would_refuse_ends_a_live_run_before_it_begins(
    tmp_path: Path,
) -> None:
    trace = tmp_path / "jobs.csv"
    rows = "0,resnet18-b64-imagenet,9,first\n900,resnet18-b64-imagenet,9,job_2\n"
    trace.write_text(f"submit_s,job_type,steps,name\n{rows}", encoding="utf-8")
    found = live_of(tmp_path / "live", "--workload", str(trace))
    assert (found.where, found.remedy) == ("job job_2", "for example job-2")
    assert not (tmp_path / "live").exists()


def test_a_live_run_that_could_not_begin_leaves_no_folder_behind(tmp_path: Path) -> None:
    assert live_of(tmp_path / "live", "--record", "nope.yaml").where == "nope.yaml"
    assert not (tmp_path / "live").exists()


def test_a_type_without_any_speed_is_said_to_be_assumed_and_not_taken_from_others(
    tmp_path: Path,
) -> None:
    profiles, trace = tmp_path / "profiles.csv", tmp_path / "jobs.csv"
    profiles.write_text("job_type,steps_per_epoch\nmine,100\n", encoding="utf-8")
    trace.write_text("submit_s,job_type,epochs\n0,mine,1\n", encoding="utf-8")
    found = reshape("replay", "-w", str(trace), "--profiles", str(profiles))
    assert found.exit_code == 0, found.output
    assert (
        "no profile has a speed of mine: assumed that a step on one GPU takes 1 s" in found.stderr
    )
    assert "slowest" not in found.stderr


def test_a_job_set_without_jobs_is_refused(tmp_path: Path) -> None:
    profiles = tmp_path / "profiles.toml"
    profiles.write_text("[sets]\none = []\n", encoding="utf-8")
    assert "sets.one: names no job type" in problem("replay", "--profiles", str(profiles)).what
