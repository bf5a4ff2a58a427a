"""No collection runs in a pause of collections, and the script finds what it had set itself."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from reshape_sidecar.hook.garbage import CollectionPause

OWN = (650, 9, 8)


class Ring:
    """An object that only a collection frees."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before, enabled = gc.get_threshold(), gc.isenabled()
    gc.set_threshold(*OWN)
    yield
    gc.set_threshold(*before)
    (gc.enable if enabled else gc.disable)()


def collections() -> int:
    return sum(int(generation["collections"]) for generation in gc.get_stats())


def collections_while_objects_are_made() -> int:
    before = collections()
    rings = [Ring() for _ in range(5_000)]
    assert rings
    return collections() - before


def test_nothing_is_collected_in_a_pause_and_something_after_it() -> None:
    pause = CollectionPause()
    pause.begin()
    assert collections_while_objects_are_made() == 0
    pause.end()
    assert gc.get_threshold() == OWN
    assert collections_while_objects_are_made() > 0


def test_a_script_that_collects_nothing_still_collects_nothing() -> None:
    gc.disable()
    pause = CollectionPause()
    pause.begin()
    pause.end()
    assert not gc.isenabled()
    assert gc.get_threshold() == OWN


@pytest.mark.parametrize("enabled", [True, False])
def test_a_switch_that_the_script_turns_in_a_pause_stays(enabled: bool) -> None:
    (gc.disable if enabled else gc.enable)()
    pause = CollectionPause()
    pause.begin()
    (gc.enable if enabled else gc.disable)()
    pause.end()
    assert gc.isenabled() is enabled


@pytest.mark.parametrize("own", [(300, 9, 8), (0, 1, 1)])
def test_a_threshold_that_the_script_sets_in_a_pause_stays(own: tuple[int, int, int]) -> None:
    pause = CollectionPause()
    pause.begin()
    gc.set_threshold(*own)
    pause.end()
    assert gc.get_threshold() == own


def test_a_threshold_of_zero_stays_and_a_second_end_changes_nothing() -> None:
    gc.set_threshold(0, 9, 8)
    pause = CollectionPause()
    pause.begin()
    pause.end()
    assert gc.get_threshold() == (0, 9, 8)
    gc.set_threshold(*OWN)
    pause.end()
    assert gc.get_threshold() == OWN


def test_a_pause_that_begins_twice_ends_with_the_threshold_before_the_first() -> None:
    pause = CollectionPause()
    pause.begin()
    pause.begin()
    pause.end()
    assert gc.get_threshold() == OWN
