"""Same seed, same bytes: whatever the hash seed of the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRACE = """
import sys
from reshape_controller.core.model import Mechanism
from reshape_controller.policies import PRESETS, make_policy
from reshape_controller.replay.generate import RECIPES, generate
from reshape_controller.replay.inputs import Costs, cluster_of
from reshape_controller.replay.shell import Scene, replay
from reshape_controller.replay.ground_truth import truth_of
from reshape_profiles.loader import bundled
from reshape_sidecar import codec

preset, seed = PRESETS[sys.argv[1]], int(sys.argv[2])
bundle, recipe = bundled(), RECIPES["two"]
truth = truth_of(bundle.profiles, seed=seed)
workload = generate(recipe, bundle, truth, seed)
costs = Costs("paper", dict(bundle.costs)["paper"])
scene = Scene(workload, cluster_of(recipe.cluster), costs, bundle.profiles, truth)
result = replay(scene, make_policy(preset.policy), preset.mechanism, seed=seed, keep=True)
for entry in (*result.events, *result.course, *(one.plan for one in result.decisions)):
    print(codec.dumps(entry))
for entry in (*result.jobs, result.metrics):
    print(repr(entry))
"""


def trace(preset: str, seed: int, hash_seed: str) -> bytes:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    found = subprocess.run(
        [sys.executable, "-c", TRACE, preset, str(seed)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        check=True,
        timeout=120,
    )
    return found.stdout


@pytest.mark.parametrize("preset", ["adaptive", "termination", "default"])
def test_a_replay_gives_the_same_bytes_under_every_hash_seed(preset: str) -> None:
    traces = {trace(preset, 3, hash_seed) for hash_seed in ("0", "1", "4711")}
    assert len(traces) == 1
    (only,) = traces
    assert only.count(b"\n") > 200


def test_another_seed_gives_another_trace() -> None:
    assert trace("default", 3, "0") != trace("default", 4, "0")
