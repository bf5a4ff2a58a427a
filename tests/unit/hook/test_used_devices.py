"""When a `fit` is looked at, and what several looks say together; TensorFlow is not imported."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from reshape_sidecar.hook import used_devices
from reshape_sidecar.hook.used_devices import FIRST_LOOK_S, LOOK_EVERY_S, LOOKS_MAX, UsedDevices


@dataclass
class Looks:
    """What each look finds, and how many were made."""

    found: list[int | None] = field(default_factory=lambda: [1])
    made: int = 0

    def count(self, model: object) -> int | None:
        self.made += 1
        return self.found[min(self.made, len(self.found)) - 1]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    made = Looks()
    monkeypatch.setattr(used_devices, "count", made.count)
    return made


def model(replicas: int = 1) -> SimpleNamespace:
    return SimpleNamespace(distribute_strategy=SimpleNamespace(num_replicas_in_sync=replicas))


def test_a_fit_is_first_looked_at_after_a_while_and_then_seldom(looks: Looks) -> None:
    used, trains = UsedDevices(2), model()
    assert used.fit_steps(trains, 0.0) is None
    assert used.fit_steps(trains, FIRST_LOOK_S - 1) is None
    assert used.fit_steps(trains, FIRST_LOOK_S) == 1
    assert used.fit_steps(trains, FIRST_LOOK_S + 1) == 1
    assert looks.made == 1
    for second in range(int(LOOK_EVERY_S) * (LOOKS_MAX + 5)):
        used.fit_steps(trains, FIRST_LOOK_S + second)
    assert looks.made == LOOKS_MAX


def test_the_most_that_any_look_or_fit_showed_counts(looks: Looks) -> None:
    looks.found = [1, 3, 1]
    used, trains = UsedDevices(4), model()
    used.fit_steps(trains, 0.0)
    seen = [used.fit_steps(trains, 100.0 * n) for n in (1, 2, 3)]
    assert seen == [1, 3, 3]
    for later, begins_s in ((model(4), 1000.0), (model(1), 2000.0)):
        assert used.fit_steps(later, begins_s) is None
        assert used.fit_steps(later, begins_s + FIRST_LOOK_S) == 4


def test_once_unknown_it_stays_so(looks: Looks) -> None:
    looks.found = [1, None, 1]
    used, trains = UsedDevices(2), model()
    used.fit_steps(trains, 0.0)
    assert [used.fit_steps(trains, 100.0 * n) for n in (1, 2, 3)] == [1, None, None]


def test_an_error_of_a_look_is_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(model: object) -> int:
        raise AttributeError("no such part")

    monkeypatch.setattr(used_devices, "count", fails)
    used, trains = UsedDevices(2), model()
    used.fit_steps(trains, 0.0)
    assert used.fit_steps(trains, 100.0) is None


def test_a_single_device_and_a_fit_on_all_of_them_need_no_look(looks: Looks) -> None:
    assert UsedDevices(1).fit_steps(model(), 100.0) is None
    used, trains = UsedDevices(2), model(2)
    used.fit_steps(trains, 0.0)
    assert used.fit_steps(trains, 100.0) == 2
    assert looks.made == 0
