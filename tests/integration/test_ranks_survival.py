"""Ranks that stop at any moment, or lose a process, lose no saved step and leave no process."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape_sidecar.init import processes as proc
from reshape_sidecar.wire import EXIT_SAVED, Mode, Observed, Processes
from tests.support.rank_stops import PROGRAM, STEPS, Moment, StopCampaign
from tests.support.sidecar_bed import DEVICES, Bed, bed, eventually

STOPS = 12
RANKS = 2


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Bed]:
    with bed(tmp_path) as made:
        yield made


def test_twelve_stops_at_random_times_lose_no_step_and_none_hangs(tmp_path: Path) -> None:
    found = list(StopCampaign(tmp_path, random.Random(39)).stops(STOPS))
    moments = Counter(stop.moment for stop in found)
    assert set(moments) == set(Moment)
    saved = [stop for stop in found if stop.code == EXIT_SAVED]
    assert len(saved) >= STOPS - moments[Moment.START], "only a start is too early to save"
    assert sum(stop.steps for stop in found) >= len(saved)


def training(job: Bed) -> Observed:
    """Ranks that have made some steps and saved once."""
    fields = {"framework": "pytorch", "processes": Processes.PER_GPU}
    seen = job.training(PROGRAM, str(STEPS), size=RANKS, **fields)
    return job.coordinator.until("a save", lambda o: (o.progress.checkpoint_step or 0) > 0) or seen


def ranks(job: Bed) -> dict[int, int]:
    """The process of each rank."""
    group = job.process().pid
    found = [p.pid for p in proc.descendants(group, proc.snapshot()) if p.parent == group]
    return {
        next(n for n in range(RANKS) if f"RANK={n}".encode() in words): pid
        for pid in found
        for words in [Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")]
    }


def goes_on(job: Bed, before: Observed, killed: list[int]) -> None:
    """Start the job again: it trains from its checkpoint, and no process of before is left."""
    eventually("no rank of before", lambda: not any(map(proc.read, killed)) or None)
    generation = job.coordinator.want(Mode.RUN, *DEVICES[:RANKS])
    job.started(generation)
    saved = before.progress.checkpoint_step or 0
    seen = job.coordinator.until(
        "steps after the checkpoint",
        lambda o: o.generation == generation and o.progress.step > saved + 5,
    )
    assert set(ranks(job)) == set(range(RANKS))
    firsts = job.log().split("first step\n")[-1].split("\n", 1)[0]
    assert int(firsts.split()[-1]) > saved
    assert seen.pid == job.process().pid


@pytest.mark.parametrize("killed", range(RANKS))
def test_a_killed_rank_ends_the_others_and_the_job_goes_on_from_its_checkpoint(
    job: Bed, killed: int
) -> None:
    before = training(job)
    pids = ranks(job)
    os.kill(pids[killed], signal.SIGKILL)
    job.coordinator.until("an end", lambda o: o.generation == before.generation and o.pid is None)
    goes_on(job, before, list(pids.values()))


def test_a_killed_parent_of_the_ranks_ends_them_and_the_job_goes_on(job: Bed) -> None:
    before = training(job)
    pids = ranks(job)
    os.kill(job.process().pid, signal.SIGKILL)
    job.coordinator.until("an end", lambda o: o.generation == before.generation and o.pid is None)
    goes_on(job, before, list(pids.values()))


def test_the_ranks_train_on_without_their_agent_and_stop_together_for_the_next_one(
    job: Bed,
) -> None:
    before = training(job)
    pids = ranks(job)
    job.kill_agent()
    job.coordinator.until("progress", lambda o: o.progress.step > before.progress.step + 20)
    assert ranks(job) == pids
    generation = job.coordinator.want(Mode.RUN, *DEVICES[: RANKS - 1])
    seen = job.started(generation)
    assert seen.outcome is not None
    assert seen.outcome.lost_steps == 0
