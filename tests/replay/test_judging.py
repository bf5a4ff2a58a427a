"""Hindsight and sensitivity: what a reshape was worth, and what an assumption is worth."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from reshape_controller.cli.replays.inputs import ReplayRequest, setup_of
from reshape_controller.core.model import Mechanism
from reshape_controller.policies import make_policy
from reshape_controller.replay.hindsight import judge
from reshape_controller.replay.sensitivity import variations
from reshape_profiles.schema import ASSUMED
from tests.support.replay_bed import job, reshape, scene


def test_a_growth_that_was_needed_is_seen_to_have_saved() -> None:
    # The second job ends early; the first then grows from two to four GPUs.
    jobs = [job("long", 0.0, 2000, (2, 4)), job("short", 300.0, 100, (2,))]
    whole, judged = judge(scene(jobs), make_policy("paper"), Mechanism.SIDECAR, 0)
    assert len(judged) == len(whole.reshapes) == 2
    growth = next(one for one in judged if one.decided.plan.reason_code == "grows")
    assert growth.makespan_s < -500.0


def test_leaving_a_reshape_out_does_not_change_the_policy() -> None:
    jobs = [job("long", 0.0, 2000, (2, 4)), job("short", 300.0, 100, (2,))]
    policy = make_policy("paper")
    first, _ = judge(scene(jobs), policy, Mechanism.SIDECAR, 0)
    second, _ = judge(scene(jobs), policy, Mechanism.SIDECAR, 0)
    assert first.metrics == second.metrics


def test_variations_change_what_is_assumed_and_nothing_that_was_published() -> None:
    setup = setup_of(ReplayRequest("one"))
    published = {
        (profile.job_type, point.gpu_type, point.gpus): point.seconds_per_step
        for profile in setup.bundle.profiles
        for point in profile.speed
        if not point.source.startswith(ASSUMED)
    }
    assert published
    found = list(variations(setup))
    names = {one.assumption for one in found}
    assert {one.factor for one in found} == {0.75, 1.25, 1.0}
    for one in found:
        points = {
            (profile.job_type, point.gpu_type, point.gpus): point.seconds_per_step
            for profile in one.setup.bundle.profiles
            for point in profile.speed
        }
        assert {key: points[key] for key in published} == published
        assert one.setup.fingerprint() != setup.fingerprint(), one.assumption
    assert len(found) == 2 * len({name for name in names if "optional" not in name}) + 3


def test_which_types_a_set_has_is_an_input_too() -> None:
    setup = setup_of(ReplayRequest("one"))
    (name, types), *others = setup.bundle.sets
    fewer = replace(setup.bundle, sets=((name, types[:1]), *others))
    assert setup.with_bundle(fewer).fingerprint() != setup.fingerprint()


def test_what_several_gpus_lose_is_varied_and_one_gpu_is_not() -> None:
    setup = setup_of(ReplayRequest("one"))
    more = next(
        one for one in variations(setup) if "several GPUs" in one.assumption and one.factor > 1.0
    )
    for before, after in zip(setup.bundle.profiles, more.setup.bundle.profiles, strict=True):
        for old, new in zip(before.speed, after.speed, strict=True):
            if old.gpus == 1 or not old.source.startswith(ASSUMED):
                assert new == old
            else:
                assert new == replace(old, seconds_per_step=new.seconds_per_step)
                assert new.seconds_per_step > old.seconds_per_step


def test_assumed_accuracies_are_varied_where_jobs_train_until_one() -> None:
    name = "steps until an accuracy is reached"
    assert name not in {one.assumption for one in variations(setup_of(ReplayRequest("three")))}
    setup = setup_of(ReplayRequest("four"))
    later = next(o for o in variations(setup) if o.assumption == name and o.factor > 1.0)
    for before, after in zip(setup.bundle.profiles, later.setup.bundle.profiles, strict=True):
        for old, new in zip(before.accuracy, after.accuracy, strict=True):
            moved = old.source.startswith(ASSUMED) and old.step > 0
            assert (new.step > old.step) == moved
            assert new.accuracy == old.accuracy
    assert later.setup.curves != setup.curves


def test_sensitivity_is_printed_and_kept(tmp_path: Path) -> None:
    arguments = ["compare", "-w", "two", "--jobs", "3", "--seeds", "1", "--workers", "1"]
    arguments += ["--policies", "adaptive,default", "--sensitivity", "--out", str(tmp_path)]
    found = reshape(*arguments, "-o", "json")
    assert found.exit_code == 0, found.output
    document = json.loads(found.stdout)
    first = document["lines"][0]
    assert (first["assumption"], first["policy"], first["than"]) == (
        *("as it is", "adaptive"),
        "default",
    )
    assert json.loads((tmp_path / "sensitivity.json").read_text()) == document
    assert "| costs: job_init_s | -25 % |" in (tmp_path / "sensitivity.md").read_text()


@pytest.mark.parametrize("more", [["--policies", "adaptive"], ["--workload", "all"]])
def test_sensitivity_needs_two_policies_and_one_workload(more: list[str]) -> None:
    found = reshape("compare", "--sensitivity", "--seeds", "1", *more)
    assert found.exit_code != 0
    assert "on one workload" in str(found.exception)


def test_hindsight_tells_every_reshape() -> None:
    arguments = ["replay", "-w", "two", "--jobs", "6", "--seed", "3", "--hindsight", "-o", "json"]
    found = reshape(*arguments)
    assert found.exit_code == 0, found.output
    document = json.loads(found.stdout)
    costs = [line["makespan_costs_s"] for line in document["reshapes"]]
    assert costs == sorted(costs, reverse=True)
    assert all(line["text"] for line in document["reshapes"])
