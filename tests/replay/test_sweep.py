"""Sweeps: what is printed, what is kept, and what a second run leaves out."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from reshape_controller.cli.exits import CliError, Exit
from reshape_controller.cli.replays import inputs
from reshape_controller.cli.replays.compare import saved_pairs
from reshape_controller.replay import setup as setups
from reshape_controller.replay import sweep as sweeps
from reshape_controller.replay.rows import CONFIDENCE, Row, interval, over, savings
from tests.support.replay_bed import reshape

METRICS = (
    *("makespan_s", "mean_jct_s", "median_jct_s", "p95_jct_s", "mean_wait_s", "overhead_ratio"),
    *("reshape_ups", "reshape_downs", "pending_at_last_submission", "gpu_use_ratio"),
    *("gpu_idle_s", "lower_bound_makespan_s"),
)


def compared(*arguments: str) -> dict[str, object]:
    found = reshape("compare", "-w", "two", "--jobs", "6", "-o", "json", *arguments)
    assert found.exit_code == 0, found.output
    document = json.loads(found.stdout)
    assert isinstance(document, dict)
    return document


def test_replay_prints_one_object_with_every_metric() -> None:
    found = reshape("replay", "-w", "two", "--jobs", "5", "--seed", "3", "-o", "json")
    assert found.exit_code == 0, found.output
    document = json.loads(found.stdout)
    assert set(METRICS) <= set(document)
    assert (document["policy"], document["seed"], document["costs"]) == ("adaptive", 3, "paper")
    assert document["makespan_s"] >= document["lower_bound_makespan_s"]


def test_compare_prints_rows_and_a_summary_for_each_policy() -> None:
    document = compared("--policies", "adaptive,optimus+sidecar", "--seeds", "3", "--workers", "1")
    assert document["workload"] == "two"
    assert document["costs"] == "paper"
    rows = document["rows"]
    assert isinstance(rows, list)
    assert [(row["policy"], row["seed"]) for row in rows] == [
        (policy, seed) for policy in ("adaptive", "optimus+sidecar") for seed in range(3)
    ]
    summary = document["summary"]
    assert isinstance(summary, dict)
    for policy in ("adaptive", "optimus+sidecar"):
        own = sorted(row["makespan_s"] for row in rows if row["policy"] == policy)
        assert summary[policy]["makespan_s"] == {"median": own[1], "low": own[0], "high": own[2]}
        assert set(METRICS) <= set(summary[policy])


def test_two_workers_give_the_rows_of_one() -> None:
    arguments = ("--policies", "adaptive,default", "--seeds", "2,5")
    assert compared(*arguments, "--workers", "2") == compared(*arguments, "--workers", "1")


def test_a_sweep_that_was_cut_off_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("--policies", "adaptive", "--seeds", "3", "--workers", "1")
    whole = compared(*arguments, "--out", str(tmp_path))
    sweeps.run_file(tmp_path, "adaptive", 1).unlink()
    sweeps.run_file(tmp_path, "adaptive", 2).write_text("[]")
    replayed: list[int] = []
    replay = sweeps.run_of

    def watched(*given: object) -> sweeps.Run:
        replayed.append(int(str(given[2])))
        return replay(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(sweeps, "run_of", watched)
    assert compared(*arguments, "--out", str(tmp_path)) == whole
    assert replayed == [1, 2]


def test_a_kept_replay_of_other_inputs_is_not_used(tmp_path: Path) -> None:
    arguments = ("--policies", "adaptive", "--seeds", "1", "--workers", "1", "--out", str(tmp_path))
    paper = compared(*arguments)
    local = compared(*arguments, "--costs", "local")
    assert paper["rows"] != local["rows"]
    assert local["costs"] == "local"


def test_a_generated_workload_can_be_replayed_as_a_file(tmp_path: Path) -> None:
    for form in ("csv", "jsonl"):
        path = tmp_path / f"jobs.{form}"
        made = reshape(
            *("workload", "generate", "-w", "two", "--jobs", "5", "--seed", "0"),
            *("--format", form, "--out", str(path)),
        )
        assert made.exit_code == 0, made.output
        direct = reshape("replay", "-w", "two", "--jobs", "5", "-o", "json")
        again = reshape("replay", "-w", str(path), "-o", "json")
        first, second = json.loads(direct.stdout), json.loads(again.stdout)
        assert first.pop("workload") == "two"
        assert second.pop("workload") == path.name
        assert first == second


def test_workload_four_asks_for_accuracies_instead_of_epochs() -> None:
    three, four = (
        list(csv.DictReader(io.StringIO(reshape("workload", "generate", "-w", name).stdout)))
        for name in ("three", "four")
    )
    assert [(job["name"], job["job_type"], job["submit_s"]) for job in three] == [
        (job["name"], job["job_type"], job["submit_s"]) for job in four
    ]
    assert len(three) == 40
    assert float(three[-1]["submit_s"]) == 11_000.0
    assert all(job["epochs"] and not job["target_accuracy"] for job in three)
    assert all(0.0 < float(job["target_accuracy"]) < 1.0 and not job["epochs"] for job in four)


def test_the_interval_of_a_median_leaves_out_what_the_ranks_allow() -> None:
    thirty = interval([float(n) for n in range(1, 31)])
    assert (thirty.median, thirty.low, thirty.high) == (15.5, 10.0, 21.0)
    three = interval([3.0, 1.0, 2.0])
    assert (three.median, three.low, three.high) == (2.0, 1.0, 3.0)


def test_too_few_seeds_are_not_said_to_give_an_interval_of_95_percent() -> None:
    assert over(1) == "one seed"
    assert over(5) == "medians over 5 seeds with the lowest and the highest"
    assert over(6) == "medians over 6 seeds with 95 % intervals"
    six = interval([float(n) for n in range(6)])
    assert CONFIDENCE <= 1.0 - 2.0 / 2**6, "all but one in 32 medians lie between six values"
    assert (six.low, six.high) == (0.0, 5.0)


def test_savings_are_taken_seed_by_seed() -> None:
    rows: list[Row] = [
        {"policy": policy, "seed": seed, "makespan_s": value}
        for policy, values in (("ours", (50.0, 90.0)), ("theirs", (100.0, 100.0)))
        for seed, value in enumerate(values)
    ]
    found = savings(rows, "ours", "theirs", ("makespan_s",))["makespan_s"]
    assert (found.median, found.low, found.high) == pytest.approx((0.3, 0.1, 0.5))


@pytest.mark.parametrize(
    ("policies", "pairs"),
    [
        ("default,paper,adaptive", [("adaptive", "default"), ("adaptive", "paper")]),
        ("paper+none,optimus+none", [("paper+none", "optimus+none")]),
        ("adaptive", []),
        (
            "adaptive,default,adaptive:gain=0.1+sidecar",
            [("adaptive", "default"), ("adaptive", "adaptive:gain=0.1+sidecar")],
        ),
        (
            "paper+none,adaptive,default",
            [("adaptive", "default"), ("paper+none", "adaptive"), ("paper+none", "default")],
        ),
    ],
)
def test_savings_are_told_of_the_papers_pairs_or_of_the_first_policy(
    policies: str, pairs: list[tuple[str, str]]
) -> None:
    means: Row = {"makespan_s": 1.0, "mean_jct_s": 1.0, "mean_wait_s": 1.0}
    rows: list[Row] = [{"policy": label, "seed": 0, **means} for label in policies.split(",")]
    found = [(ours, other) for ours, other, _ in saved_pairs(rows)]
    assert found[: len(pairs)] == pairs
    assert {*policies.split(",")} <= {name for pair in found for name in pair} or not pairs


@pytest.mark.parametrize(
    ("label", "what"),
    [
        ("nobody", "unknown preset"),
        ("nobody+sidecar", "unknown policy 'nobody'"),
        ("adaptive+magic", "unknown mechanism 'magic'"),
        ("optimus", "unknown preset"),
    ],
)
def test_an_unknown_policy_is_named_with_the_remedy(label: str, what: str) -> None:
    with pytest.raises(CliError, match=what) as error:
        inputs.contender(label)
    assert error.value.code is Exit.USAGE


ENDLESS = "99999999999999999999"


@pytest.mark.parametrize("text", ["", "0", "x", "3-1", "1,1", "-2", ENDLESS, f"0-{ENDLESS}"])
def test_seeds_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(CliError, match="is not a list of"):
        inputs.seeds_of(text)


def test_a_kept_replay_of_other_code_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("--policies", "adaptive", "--seeds", "1", "--workers", "1", "--out", str(tmp_path))
    compared(*arguments)
    first = sweeps.run_file(tmp_path, "adaptive", 0).read_text()
    monkeypatch.setattr(setups, "code_mark", lambda: "another version")
    compared(*arguments)
    assert json.loads(sweeps.run_file(tmp_path, "adaptive", 0).read_text()) != json.loads(first)
