"""Once growth is worth it for no job, only what may change that is looked at."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.core.model import JobId
from reshape_controller.core.plan import JobView, Snapshot
from reshape_controller.policies.adaptive import MAKESPAN
from reshape_controller.scheduling.bounds import GrowthBounds
from reshape_controller.scheduling.cluster_index import ClusterIndex, RunningEntry
from reshape_controller.scheduling.predictor import Predictor
from tests.support.clusters import COSTS, Cluster

FULL = (
    Cluster({"a": ("V100", 8)}, COSTS)
    .runs("wide", 6, sizes=(6,), speed={6: 1.0})
    .runs("new", 2, sizes=(2, 4))
    .snapshot()
)
"""A host of eight GPUs, all of them in use."""


def bounds(snapshot: Snapshot) -> GrowthBounds:
    return GrowthBounds(snapshot, Predictor(snapshot), MAKESPAN.min_saving_ms, MAKESPAN)


class Follower:
    """A planner's index, which follows snapshots."""

    def __init__(self) -> None:
        self.index = ClusterIndex()
        self.known: dict[JobId, JobView] = {}

    def follow(self, *names: str) -> Snapshot:
        """The next snapshot, in which these jobs run."""
        running = tuple(job for job in FULL.running if job.id in names)
        idle = 8 - sum(job.size for job in running)
        hosts = (replace(FULL.hosts[0], idle=idle),)
        views = {job.id: job for job in running}
        changed = {
            job: views.get(job)
            for job in self.known | views
            if self.known.get(job) is not views.get(job)
        }
        self.known = views
        snapshot = replace(FULL, running=running, hosts=hosts, explain=False)
        return self.index.follow(snapshot, changed)

    def candidates(self, *names: str) -> list[str]:
        """The jobs that may be worth it, which are those of an index that knows nothing before."""
        snapshot = self.follow(*names)
        found = bounds(snapshot).candidates
        assert found == bounds(replace(snapshot, index=None)).candidates
        return [str(job.id) for job in found]


def test_a_job_that_came_while_no_gpu_was_idle_grows_when_some_are_again() -> None:
    follower = Follower()
    assert follower.candidates("wide") == []
    assert follower.candidates("wide", "new") == []
    assert follower.candidates("new") == ["new"]


def test_a_job_that_came_while_no_gpu_was_idle_grows_when_as_many_are_as_before_it() -> None:
    follower = Follower()
    assert follower.candidates() == []
    assert follower.candidates("wide", "new") == []
    assert follower.candidates("new") == ["new"]


def test_jobs_that_stay_are_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[JobId] = []
    compare = GrowthBounds.may_be_worth

    def counted(self: GrowthBounds, entry: RunningEntry) -> bool:
        looks.append(entry.job.id)
        return compare(self, entry)

    monkeypatch.setattr(GrowthBounds, "may_be_worth", counted)
    follower = Follower()
    assert bounds(follower.follow("wide")).candidates == []
    assert looks == ["wide"]
    assert bounds(follower.follow("wide")).candidates == []
    assert looks == ["wide"]
