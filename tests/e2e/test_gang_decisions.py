"""A gang under the policy ``adaptive``: a daemon of two hosts and a replay decide the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reshape_controller.core.model import JobSpec, Length, LengthUnit, Mechanism, Spans
from reshape_controller.core.plan import Plan
from reshape_controller.policies import make_policy
from reshape_controller.replay.ground_truth import truth_of
from reshape_controller.replay.inputs import Costs, WorkJob, Workload, cluster_of
from reshape_controller.replay.shell import Scene, replay
from reshape_controller.store.sqlite.store import SqliteStore
from reshape_profiles import loader
from reshape_profiles.schema import Overhead, Profile, SpeedPoint
from tests.support import local_gangs as gangs
from tests.support.daemon_bed import Bed
from tests.support.daemon_bed import bed as make_bed

pytestmark = pytest.mark.timeout(300)

GPU = "V100"
STEP_S = 0.16
"""Seconds of a step on one GPU; n GPUs train n times as fast."""
PROFILE = Profile(
    "lockstep",
    speed=tuple(SpeedPoint(GPU, gpus, STEP_S / gpus) for gpus in (4, 8)),
    overhead=Overhead(1.0, 0.5, 0.1, 0.1, 0.5),
)
LARGE, SMALL = "large", "small"
STEPS = {LARGE: 4000, SMALL: 100}
SIZES = {LARGE: [4, 8], SMALL: [4]}
Decisions = list[dict[str, tuple[int, list[str]]]]
"""Of each plan that changes something: the size and the hosts of each job."""


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)


def decisions(plans: Iterable[Plan], hosts: dict[str, str]) -> Decisions:
    """``hosts``: names of the hosts, as they shall be called."""
    return [
        {
            target.job.partition("-")[0]: (target.size, [hosts[host] for host in target.all_hosts])
            for target in plan.targets
        }
        for plan in plans
        if plan.targets
    ]


async def _plans(store_file: Path) -> list[Plan]:
    store = SqliteStore(store_file)
    await store.open()
    try:
        return [plan async for record in store.read(0) for plan in record.plans]
    finally:
        await store.close()


def replayed() -> Decisions:
    """Return what a replay decides on the same jobs."""
    specs = [
        JobSpec(
            name,
            ("train",),
            tuple(SIZES[name]),
            Length(LengthUnit.STEPS, float(STEPS[name])),
            job_type=PROFILE.job_type,
            workers=2,
            span=Spans.ANY,
        )
        for name in (LARGE, SMALL)
    ]
    jobs = tuple(WorkJob(at_s, spec) for at_s, spec in zip((0.0, 10.0), specs, strict=True))
    assert PROFILE.overhead is not None
    costs = Costs("gangs", PROFILE.overhead)
    scene = Scene(
        Workload("gangs", jobs),
        cluster_of(f"2*4x{GPU}"),
        costs,
        (PROFILE,),
        truth_of((PROFILE,), spread=0.0),
    )
    result = replay(scene, make_policy("adaptive"), Mechanism.SIDECAR, keep=True, check=True)
    names = {"host-0000": gangs.FIRST, "host-0001": gangs.SECOND}
    return decisions((decision.plan for decision in result.decisions), names)


def test_live_and_in_a_replay_four_gpus_are_lent_over_both_hosts_and_come_back(bed: Bed) -> None:
    profiles = bed.folder / "profiles.json"
    profiles.write_text(loader.write([PROFILE]))
    bed.up(*gangs.HOSTS, "--gpu-type", GPU, "--profiles", str(profiles))
    ids = {}
    for name in (LARGE, SMALL):
        command = ["python", f"{name}.py", str(STEPS[name]), str(STEP_S / 2), "1000000000"]
        fields: dict[str, Any] = {
            "optional_gpus": SIZES[name],
            "job_type": PROFILE.job_type,
            "command": command,
        }
        ids[name] = gangs.submit(bed, name, steps=STEPS[name], **fields)
        gangs.trains(bed, ids[name], max(SIZES[name]))
    bed.reaches(ids[SMALL], "completed")
    gangs.has_got_back(bed, ids[LARGE])
    bed.stop()
    names = {gangs.FIRST: gangs.FIRST, gangs.SECOND: gangs.SECOND}
    live = decisions(asyncio.run(_plans(bed.home / "store.sqlite")), names)
    both = [gangs.FIRST, gangs.SECOND]
    assert live == [
        {LARGE: (8, both)},
        {SMALL: (4, both), LARGE: (4, both)},
        {LARGE: (8, both)},
    ]
    assert replayed() == [*live]
