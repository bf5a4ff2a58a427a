"""Generated workloads: the paper's, faster ones, and those with bursts and heavy tails."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean, pstdev

import pytest

from reshape_controller.cli.replays.inputs import ReplayRequest, setup_of
from reshape_controller.replay.generate import LAST_ARRIVAL_S, RECIPES
from reshape_controller.replay.inputs import Workload
from reshape_controller.replay.setup import faster

BURSTS = tuple(name for name, recipe in RECIPES.items() if recipe.load)


def drawn(name: str, seed: int, load: float = 1.0) -> Workload:
    return setup_of(ReplayRequest(name, load=load)).scene(seed).workload


@pytest.mark.parametrize("name", RECIPES)
def test_a_load_makes_the_same_jobs_come_faster(name: str) -> None:
    usual, fast = drawn(name, 1), drawn(name, 1, load=2.0)
    assert [job.spec for job in fast.jobs] == [job.spec for job in usual.jobs]
    assert [job.submit_s * 2.0 for job in fast.jobs] == [job.submit_s for job in usual.jobs]
    if name not in BURSTS:
        assert usual.jobs[-1].submit_s == LAST_ARRIVAL_S


def test_the_jobs_of_a_file_come_faster_from_its_first_arrival_on() -> None:
    usual = drawn("two", 1)
    fast = faster(usual, 4.0)
    first_s = usual.jobs[0].submit_s
    assert [first_s + (job.submit_s - first_s) * 4.0 for job in fast.jobs] == pytest.approx(
        [job.submit_s for job in usual.jobs]
    )


@pytest.mark.parametrize("name", BURSTS)
def test_bursts_have_short_gaps_and_few_long_ones_and_few_jobs_have_most_of_the_work(
    name: str,
) -> None:
    spreads, shares = [], []
    for seed in range(10):
        jobs = drawn(name, seed).jobs
        gaps = [after.submit_s - before.submit_s for before, after in pairwise(jobs)]
        spreads.append(pstdev(gaps) / fmean(gaps))
        epochs = sorted(job.spec.length.value for job in jobs if job.spec.length is not None)
        shares.append(sum(epochs[-len(jobs) // 10 :]) / sum(epochs))
    assert fmean(spreads) > 1.5, "1 without bursts"
    assert fmean(shares) > 0.3, "0.1 if all jobs are equally long"


@pytest.mark.parametrize("name", BURSTS)
def test_the_work_of_the_jobs_is_the_given_part_of_what_the_gpus_can_do(name: str) -> None:
    scene = setup_of(ReplayRequest(name)).scene(3)
    seconds = 0.0
    for job in scene.workload.jobs:
        truth = scene.truth.of(job.spec)
        speeds = (host.gpus / truth.step_s(host.gpu_type, 1) for host in scene.cluster.hosts)
        seconds += truth.total_steps / sum(speeds)
    assert seconds / scene.workload.jobs[-1].submit_s == pytest.approx(0.9)
