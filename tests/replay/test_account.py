"""What a replay books round by round, against a look at the whole cluster after each round."""

from __future__ import annotations

import pytest

from reshape_controller.core.changes import ChangeSet
from reshape_controller.core.model import Gpu, GpuId, GpuState, Stage
from reshape_controller.core.state import State
from reshape_controller.replay.account import Account, Use
from tests.support.replay_bed import job, run, scene


def use_of(state: State, gpu: Gpu) -> Use:
    """What a GPU is doing, from the state alone."""
    if gpu.state is GpuState.RESERVED:
        return Use.RESERVED
    if gpu.state is GpuState.RELEASING:
        return Use.STOPPING
    if gpu.state is not GpuState.IN_USE or gpu.owner is None:
        return Use.UNALLOCATED
    stage = state.jobs[gpu.owner].stage
    return {Stage.STARTING: Use.STARTING, Stage.TRAINING: Use.TRAINING}.get(stage, Use.STOPPING)


@pytest.mark.parametrize("preset", ["adaptive", "paper", "default", "adaptive+terminate"])
def test_gpu_seconds_are_those_of_a_look_at_every_gpu(
    preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds, uses, last_s = [0.0] * len(Use), dict[GpuId, Use](), [0.0]
    accounts: list[Account] = []
    book = Account.book

    def looked(self: Account, state: State, touched: ChangeSet, now_s: float) -> None:
        if self.done < self.jobs:
            for use in uses.values():
                seconds[use] += now_s - last_s[0]
        book(self, state, touched, now_s)
        uses.update({gpu.id: use_of(state, gpu) for gpu in state.gpus.values()})
        last_s[0], accounts[:] = now_s, [self]

    monkeypatch.setattr(Account, "book", looked)
    jobs = [job(f"job-{n:02d}", 45.0 * n, 60 + 37 * (n % 5)) for n in range(12)]
    result = run(scene(jobs, cluster="4xV100+2xP100", spread=0.15), preset)
    assert result.metrics.gpu_stopping_s > 0.0 or preset == "default"
    assert accounts[0].seconds == seconds


@pytest.mark.parametrize("preset", ["adaptive", "adaptive+terminate"])
def test_a_replay_that_keeps_nothing_is_the_same_replay(preset: str) -> None:
    jobs = [job(f"job-{n:02d}", 45.0 * n, 60 + 37 * (n % 5)) for n in range(12)]
    given = scene(jobs, cluster="4xV100+2xP100", spread=0.15)
    kept, bare = run(given, preset, keep=True), run(given, preset)
    assert kept.events
    assert not bare.events
    assert (bare.metrics, bare.jobs, bare.reshapes) == (kept.metrics, kept.jobs, kept.reshapes)
    assert bare.engine_events == kept.engine_events


@pytest.mark.parametrize("preset", ["adaptive", "paper", "termination", "paper+terminate"])
def test_reshapes_and_first_steps_are_those_that_the_events_tell(preset: str) -> None:
    """A job that is asked again in the round of its first step is never seen in training."""
    jobs = [job(f"job-{n:02d}", 45.0 * n, 60 + 370 * (n % 5)) for n in range(9)]
    result = run(scene(jobs, cluster="8xV100+4xP100", spread=0.15), preset, keep=True)
    first_s, asked_s, told = (
        dict[str, float](),
        dict[str, float](),
        list[tuple[str, float, float]](),
    )
    for event in result.events:
        if event.job is not None and event.kind in ("grow-asked", "shrink-asked", "relaunch-asked"):
            asked_s[event.job] = event.at_s
        elif event.job is not None and event.kind == "first-step":
            first_s.setdefault(event.job, event.at_s)
            if event.job in asked_s:
                asked_at_s = asked_s.pop(event.job)
                told.append((event.job, asked_at_s, event.at_s - asked_at_s))
    assert told
    assert sorted((one.job, one.asked_at_s, one.seconds) for one in result.reshapes) == sorted(told)
    assert {row.job: row.first_step_s for row in result.jobs} == first_s
