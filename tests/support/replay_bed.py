"""Scenes for tests of the replay, small enough for hand arithmetic.

Does: jobs with speeds given as seconds per step by size, on hosts of one GPU type, with round
costs. Never: checks anything. State: none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from typer.testing import CliRunner
from typer.testing import Result as Printed

from reshape_controller.cli.main import build
from reshape_controller.core.model import JobSpec, Length, LengthUnit, Mechanism
from reshape_controller.policies import PRESETS, make_policy
from reshape_controller.replay.ground_truth import truth_of
from reshape_controller.replay.inputs import Costs, WorkJob, Workload, cluster_of
from reshape_controller.replay.shell import Result, Scene, replay
from reshape_profiles.schema import Overhead, Profile, SpeedPoint

FREE = Costs("free", Overhead(0.0, 0.0, 0.0, 0.0, 0.0))
ROUND = Costs("round", Overhead(40.0, 20.0, 2.0, 3.0, 30.0))
LINEAR = {1: 8.0, 2: 4.0, 4: 2.0, 8: 1.0}
PAPER = {1: 2.04, 2: 1.2, 4: 0.85}


def job(
    name: str,
    submit_s: float,
    steps: int,
    sizes: Sequence[int] = (1, 2, 4),
    kind: str = "linear",
) -> WorkJob:
    """A job of ``steps`` steps."""
    length = Length(LengthUnit.STEPS, float(steps))
    return WorkJob(submit_s, JobSpec(name, ("train",), tuple(sizes), length, job_type=kind))


def scene(
    jobs: Sequence[WorkJob],
    *,
    cluster: str = "4xV100",
    costs: Costs = ROUND,
    speeds: Mapping[str, Mapping[int, float]] | None = None,
    spread: float = 0.0,
    seed: int = 0,
) -> Scene:
    """A scene of ``jobs``; every GPU type has the same speeds."""
    found = cluster_of(cluster)
    kinds = sorted({host.gpu_type for host in found.hosts})
    tables = speeds or {"linear": LINEAR, "paper": PAPER}
    profiles = tuple(
        Profile(
            name,
            speed=tuple(SpeedPoint(kind, n, s) for kind in kinds for n, s in table.items()),
        )
        for name, table in tables.items()
    )
    workload = Workload("test", tuple(sorted(jobs, key=lambda entry: entry.submit_s)))
    truth = truth_of(profiles, spread=spread, seed=seed)
    return Scene(workload, found, costs, profiles, truth)


def run(
    given: Scene, preset: str, *, seed: int = 0, keep: bool = False, **options: object
) -> Result:
    """Replay under a preset, or ``policy+mechanism``; invariants are checked after each round."""
    name, _, way = preset.partition("+")
    mechanism = Mechanism(way) if way else PRESETS[name].mechanism
    policy = make_policy(name if way else PRESETS[name].policy, **options)
    return replay(given, policy, mechanism, seed=seed, keep=keep, check=True)


def with_costs(given: Scene, costs: Costs) -> Scene:
    """The same scene at other costs."""
    return replace(given, costs=costs)


def reshape(*words: str) -> Printed:
    """Run the command line in this process."""
    return CliRunner().invoke(build(words), list(words))
