"""Options of replays that mean nothing together, or nothing at all, are refused and not ignored."""

from __future__ import annotations

import pytest

from reshape_controller.cli.exits import CliError, Exit, Problem
from tests.replay_bed import reshape


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
    assert "is there 2 times" in found.what
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("words", "where"),
    [
        ("--policy adaptive", "--policy adaptive"),
        ("--seed 3", "--seed 3"),
        ("--cluster 4xV100", "--cluster 4xV100"),
        ("--costs paper", "--costs paper"),
        ("--hindsight", "--hindsight"),
        ("--out f", "--out f"),
        ("--live f", "--live f"),
    ],
)
def test_the_case_study_has_all_of_its_own(words: str, where: str) -> None:
    found = problem("replay", "--workload", "case-study", *words.split())
    assert found.where == where
    assert "the case study has its own jobs" in found.what
    assert found.remedy.startswith(f"leave out {words.split()[0]}")


def test_a_time_that_can_be_no_seconds_is_refused() -> None:
    found = problem("replay", "--jobs", "3", "--last", "1e308")
    assert "give seconds from 0 to 1e+10" in found.what


@pytest.mark.parametrize(
    ("words", "where", "remedy"),
    [
        ("replay --speed-up 3", "--speed-up 3.0", "add --live FOLDER, or leave out --speed-up"),
        ("replay --hindsight --out f", "--out f", "leave out --out, or --hindsight"),
        ("replay --live f --hindsight", "--hindsight", "leave out --hindsight, or --live"),
        ("compare a b --seeds 3", "--seeds", "leave out --seeds, or the bundles"),
    ],
)
def test_what_goes_with_another_kind_of_run_is_not_ignored(
    words: str, where: str, remedy: str
) -> None:
    found = problem(*words.split())
    assert (found.where, found.remedy) == (where, remedy)
