"""The time of a step, and what evaluations and ends of epochs take apart from it."""

from __future__ import annotations

import random

import pytest

from reshape_sidecar.hook.step_clock import StepClock


class Training:
    """A clock beside a training in virtual time."""

    def __init__(self) -> None:
        self.clock, self.now_s = StepClock(), 100.0
        self.clock.begin(self.now_s)

    def steps(self, count: int, step_s: float) -> Training:
        for _ in range(count):
            self.now_s += step_s
            self.clock.steps_done(self.now_s, 1)
        return self

    def epoch_end(self, seconds: float) -> None:
        self.now_s += seconds
        self.clock.epoch_over(self.now_s)


@pytest.mark.parametrize("step_s", [0.0002, 0.02, 0.9, 7.0, 200.0])
def test_even_steps_have_their_time_however_long_they_are(step_s: float) -> None:
    assert Training().steps(100, step_s).clock.seconds_per_step == pytest.approx(step_s)


def test_before_a_part_is_whole_the_mean_of_its_steps_counts() -> None:
    clock = StepClock()
    assert clock.seconds_per_step is None
    clock.steps_done(100.0, 1)
    assert clock.seconds_per_step is None
    clock.steps_done(100.2, 1)
    clock.steps_done(100.3, 1)
    assert clock.seconds_per_step == pytest.approx(0.15)


def test_steps_of_two_kinds_have_their_mean_as_what_a_progress_bar_prints() -> None:
    found = Training()
    for _ in range(300):
        found.steps(9, 0.002).steps(1, 0.05)
    assert found.clock.seconds_per_step == pytest.approx((9 * 0.002 + 0.05) / 10, rel=0.05)


def test_noise_of_a_busy_machine_moves_it_by_less_than_a_fifth() -> None:
    rng, found = random.Random(7), Training()
    for _ in range(4000):
        found.steps(1, rng.choice((0.005, 0.01, 0.01, 0.02)) + (3.0 if rng.random() < 0.001 else 0))
    assert found.clock.seconds_per_step == pytest.approx(0.01125, rel=0.2)


def test_it_is_that_of_the_last_minute_or_of_the_last_twenty_steps() -> None:
    fast = Training().steps(100, 10.0).steps(8, 1.0)
    assert fast.clock.seconds_per_step == 10.0
    assert fast.steps(30, 1.0).clock.seconds_per_step == 1.0
    later = Training().steps(3000, 0.1).steps(700, 0.05)
    assert later.clock.seconds_per_step == pytest.approx(0.05)


def test_validation_and_ends_of_epochs_are_apart_and_named() -> None:
    found = Training()
    for _ in range(5):
        found.steps(100, 0.02)
        found.clock.evaluation_took(1.5)
        found.epoch_end(2.0)
    clock = found.clock
    assert clock.seconds_per_step == pytest.approx(0.02)
    assert clock.evaluation_s == 1.5
    assert clock.epoch_end_s == pytest.approx(2.0)
    assert clock.apart_s_per_step == pytest.approx(0.02)
    assert (clock.seconds_per_step or 0.0) + clock.apart_s_per_step == pytest.approx(
        (found.now_s - 100.0) / 500
    )


def test_an_evaluation_of_a_loop_lasts_from_its_last_step_on() -> None:
    found = Training().steps(100, 0.02)
    found.now_s += 3.0
    for _ in range(2):  # two metrics of one evaluation
        found.clock.evaluated(found.now_s)
    found.steps(100, 0.02)
    assert found.clock.evaluation_s == pytest.approx(3.0)
    assert found.clock.seconds_per_step == pytest.approx(0.02)
    found.now_s += 3.0
    found.clock.evaluated(found.now_s)
    found.epoch_end(1.0)
    assert found.clock.epoch_end_s == pytest.approx(4.0)
    assert found.clock.apart_s_per_step == pytest.approx(7.0 / 200)


def test_a_step_that_is_counted_after_its_evaluation_is_not_longer_for_it() -> None:
    found = Training().steps(100, 0.02)
    for _ in range(3):
        found.now_s += 0.02
        found.clock.rest(found.now_s)
        found.now_s += 5.0
        found.clock.evaluated(found.now_s)
        found.clock.steps_done(found.now_s, 1)
        found.steps(99, 0.02)
    assert found.clock.seconds_per_step == pytest.approx(0.02)
    assert found.clock.evaluation_s == pytest.approx(5.0)
    assert found.clock.apart_s_per_step == pytest.approx(15.0 / 301, rel=0.01)


def test_a_line_of_a_log_is_part_of_a_step_and_a_save_is_none() -> None:
    found = Training()
    for _ in range(200):
        found.now_s += 0.02
        found.clock.rest(found.now_s)
        found.now_s += 0.01
        found.clock.steps_done(found.now_s, 1)
    assert found.clock.seconds_per_step == pytest.approx(0.03)
    found.now_s += 30.0
    found.clock.begin(found.now_s)
    found.steps(100, 0.03)
    assert found.clock.seconds_per_step == pytest.approx(0.03)


def test_a_clock_costs_less_than_a_hundredth_of_a_short_step() -> None:
    import time

    clock, began_s = StepClock(), time.perf_counter()
    for number in range(20_000):
        clock.steps_done(number * 0.001, 1)
    assert (time.perf_counter() - began_s) / 20_000 < 20e-6
