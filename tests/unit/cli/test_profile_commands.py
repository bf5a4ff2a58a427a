"""``reshape profile``: what it shows, plots and measures, and each mistake in one message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reshape_controller.cli.exits import CliError, Exit
from reshape_controller.cli.profiles.commands import profile_app
from reshape_profiles import files, loader, profiler
from reshape_profiles.schema import Overhead, Profile
from reshape_profiles.training_run import RunFailed, Script


def said(*words: str) -> str:
    result = CliRunner().invoke(profile_app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*words: str) -> CliError:
    with pytest.raises(CliError) as caught:
        CliRunner().invoke(profile_app, list(words), catch_exceptions=False)
    return caught.value


def test_a_type_is_shown_with_the_source_of_each_figure() -> None:
    text = said("show", "resnet18-b64-imagenet")
    assert "paper, Table IV" in text
    assert text.count("resnet18-b64-imagenet") == 1


def test_all_types_are_shown_as_json() -> None:
    document = json.loads(said("show", "-o", "json"))
    assert len(document) == len(loader.bundled().profiles)


def test_a_plot_is_text_or_a_picture(tmp_path: Path) -> None:
    assert "█" in said("plot", "vgg16-b64-imagenet")
    said("plot", "--svg", str(tmp_path / "all.svg"))
    assert (tmp_path / "all.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (["show", "bert"], Exit.NOT_FOUND, "no profile of bert"),
        (["show", "--file", "/nowhere.toml"], Exit.USAGE, "cannot be read"),
        (
            ["plot", "--gpu-type", "TPU", "--svg", "x.svg"],
            Exit.NOT_FOUND,
            "no profile has speeds on TPU",
        ),
        (
            ["run", "--type", "a", "--sizes", "1,two", "--simulated-gpus", "2", "--", "x.py"],
            Exit.USAGE,
            "'1,two' is not a list of GPU counts",
        ),
        (
            ["run", "--type", "a", "--sizes", "1,4", "--simulated-gpus", "2", "--", "x.py"],
            Exit.USAGE,
            "--sizes asks for 4 GPUs; 2 are available",
        ),
        (
            ["run", "--type", "a", "--sizes", "2", "--batch", "3", "--simulated-gpus", "2", "x.py"],
            Exit.USAGE,
            "a global batch of 3 cannot be split evenly over 2 GPUs",
        ),
        (["plot", "--svg", "/nowhere/x.svg"], Exit.FAILED, "the chart cannot be written"),
        (
            ["run", "--type", "a/b", "--simulated-gpus", "1", "--", "x.py"],
            Exit.USAGE,
            "the file cannot be written",
        ),
        (["costs", "--out", "/nowhere/costs.json"], Exit.USAGE, "the file cannot be written"),
    ],
)
def test_a_mistake_is_one_message_with_a_remedy(words: list[str], code: Exit, what: str) -> None:
    error = refused(*words)
    assert error.code is code
    assert what in error.problems[0].what
    assert error.problems[0].remedy


def test_a_run_writes_a_file_that_can_be_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Script, str, tuple[str, ...], tuple[int, ...]]] = []

    def measured(
        script: Script,
        gpu_type: str,
        devices: tuple[str, ...],
        sizes: tuple[int, ...],
        costs: Overhead,
        say: object,
    ) -> Profile:
        asked.append((script, gpu_type, devices, sizes))
        return Profile(script.job_type, overhead=costs)

    monkeypatch.setattr(profiler, "profile", measured)
    target = tmp_path / "mine.json"
    options = ["--type", "mine", "--sizes", "1,2", "--simulated-gpus", "2", "--batch", "64"]
    said("run", *options, "--into", str(target), "--", "train.py", "--epochs", "3")
    ((script, gpu_type, devices, sizes),) = asked
    assert script.command == ("train.py", "--epochs", "3")
    assert (script.global_batch, script.simulated) == (64, True)
    assert (gpu_type, devices, sizes) == ("simulated", ("sim-0", "sim-1"), (1, 2))
    assert files.load(target).bundle.profiles[0].job_type == "mine"
    again = refused("run", *options, "--into", str(target), "--", "train.py")
    assert again.problems[0].what == "the file exists already"


def test_a_run_that_fails_says_what_the_script_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*arguments: object) -> Profile:
        raise RunFailed("the script reported no iteration (exit code 3)")

    monkeypatch.setattr(profiler, "profile", failing)
    options = ["--type", "mine", "--simulated-gpus", "1", "--into", str(tmp_path / "x.json")]
    error = refused("run", *options, "--", "train.py")
    assert error.code is Exit.FAILED
    assert "exit code 3" in error.problems[0].what
    assert not (tmp_path / "x.json").exists()
