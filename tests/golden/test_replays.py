"""Replays decide, command and end as they did: the first seeds of each set, by their hashes."""

from __future__ import annotations

from itertools import product

import pytest

from reshape_controller.replay.paper import WORKLOADS
from tests.golden.replays import FILE, POLICIES, SEEDS, SUBSET_SEEDS, committed, hash_of, replays_of

REMEDY = "python -m tests.golden.replays check --all says which; a change that is meant: write"


@pytest.fixture(scope="module")
def hashes() -> dict[tuple[str, str, int], str]:
    return committed()


def test_the_file_has_a_hash_of_each_replay() -> None:
    assert list(committed()) == list(replays_of(SEEDS))
    assert len(set(committed().values())) > len(committed()) / 2, FILE


@pytest.mark.parametrize(("workload", "policy"), list(product(WORKLOADS, POLICIES.split(","))))
def test_a_replay_decides_commands_and_ends_as_before(
    hashes: dict[tuple[str, str, int], str], workload: str, policy: str
) -> None:
    for seed in range(SUBSET_SEEDS):
        assert hash_of(workload, policy, seed) == hashes[workload, policy, seed], REMEDY
