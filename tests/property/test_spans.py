"""Random plans with gangs: what must hold after each event and at the end (``random_spans``)."""

from __future__ import annotations

import pytest

from tests.property.random_spans import run
from tests.support.gate import examples

PARTS = 4
SEEDS = range(examples(240))


@pytest.mark.parametrize("part", range(PARTS))
def test_a_gang_gets_and_gives_gpus_as_a_whole_and_ends_with_each_of_its_hosts(part: int) -> None:
    starts = sum(run(seed) for seed in SEEDS[part::PARTS])
    assert starts > len(SEEDS[part::PARTS]), "too few gangs started to show anything"
