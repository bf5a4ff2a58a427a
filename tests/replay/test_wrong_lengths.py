"""Policies that expect half or twice the lengths of jobs, or none, keep their order.

The profiles that the policies know have other epochs than the world, and no job reports its length.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean

import pytest

from reshape_controller.cli.replays.inputs import ReplayRequest, setup_of
from reshape_controller.core.model import JobSpec
from reshape_controller.replay.ground_truth import JobTruth, Truth
from reshape_controller.replay.shell import Scene
from tests.support.replay_bed import run

SEEDS = range(3)


class SilentJob(JobTruth):
    """A job that reports no length."""

    __slots__ = ()

    @property
    def known_total(self) -> int | None:
        return None


@dataclass(frozen=True, slots=True)
class SilentTruth(Truth):
    """A world in which no job reports its length, nor the steps of an epoch."""

    def of(self, spec: JobSpec) -> JobTruth:
        true = Truth.of(self, spec)
        return SilentJob(spec, true.total_steps, None, true.factor, true.book)


def misinformed(seed: int, factor: float | None) -> Scene:
    """Workload two, with lengths that policies expect ``factor`` times as long; None: unknown."""
    scene = setup_of(ReplayRequest("two")).scene(seed)
    profiles = tuple(
        replace(profile, steps_per_epoch=_times(profile.steps_per_epoch, factor))
        for profile in scene.profiles
    )
    truth = SilentTruth(scene.truth.book, seed=seed, spread=scene.truth.spread)
    return replace(scene, profiles=profiles, truth=truth)


def _times(steps: int | None, factor: float | None) -> int | None:
    return None if steps is None or factor is None else round(steps * factor)


def mean_s(policy: str, factor: float | None) -> float:
    results = [run(misinformed(seed, factor), policy, seed=seed) for seed in SEEDS]
    return fmean(result.metrics.mean_jct_s for result in results)


@pytest.mark.parametrize("factor", [1.0, 0.5, 2.0, None])
def test_policies_keep_their_order_by_mean_completion_time(factor: float | None) -> None:
    ours, termination, fifo, drawn = (
        mean_s(policy, factor) for policy in ("adaptive", "termination", "fifo+none", "default")
    )
    assert ours < termination < fifo < drawn
