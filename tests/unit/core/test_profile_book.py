"""Speeds between and beyond recorded sizes, and how measurements move what is believed."""

from __future__ import annotations

import pytest

from reshape_controller.core.knowledge import Learned, Measured, measure
from reshape_controller.core.profile_book import ProfileBook
from reshape_controller.core.recorded_speeds import curve_on, default_curve, speeds_of_profile
from reshape_profiles.schema import Profile, SpeedPoint


def book(*points: SpeedPoint) -> ProfileBook:
    return ProfileBook().with_profile(Profile("kind", speed=points))


def test_the_default_curve_passes_through_the_papers_two_speed_ups_and_then_falls() -> None:
    speedups = [default_curve(1) / default_curve(n) for n in (1, 2, 4, 8, 16)]
    assert speedups[:3] == pytest.approx([1.0, 1.7, 2.4], abs=1e-3)
    assert speedups[3] > speedups[2]
    assert speedups[4] < speedups[3]


def test_recorded_sizes_are_as_recorded() -> None:
    known = book(SpeedPoint("V100", 1, 0.18), SpeedPoint("V100", 2, 0.14))
    assert known.seconds_per_step("kind", "V100", 2) == pytest.approx(0.14)


def test_sizes_between_and_beyond_follow_the_default_curve() -> None:
    known = book(SpeedPoint("V100", 1, 1.0), SpeedPoint("V100", 4, default_curve(4)))
    assert known.seconds_per_step("kind", "V100", 2) == pytest.approx(default_curve(2))
    assert known.seconds_per_step("kind", "V100", 8) == pytest.approx(default_curve(8))


@pytest.mark.parametrize("found", ["V100", "v100", "tesla-v100-sxm2-16gb"])
def test_a_gpu_type_is_found_under_the_name_that_its_driver_gives(found: str) -> None:
    known = book(SpeedPoint("V100", 1, 0.2), SpeedPoint("K80", 1, 0.8))
    assert known.seconds_per_step("kind", found, 1) == 0.2
    assert known.knows_speed("kind", found)
    assert not known.knows_speed("kind", "v1000")


def test_an_unknown_gpu_type_is_as_slow_as_the_slowest_known() -> None:
    known = book(SpeedPoint("V100", 1, 0.2), SpeedPoint("K80", 1, 0.8))
    assert known.seconds_per_step("kind", "H200", 1) == pytest.approx(0.8)


def test_a_measurement_moves_a_belief_by_a_bounded_weight() -> None:
    known = measure((), "V100", 2, 3.0, prior_s=1.0, weight=0.5)
    assert known == (Measured("V100", 2, 2.0, 1),)
    known = measure(known, "V100", 2, 3.0, prior_s=1.0, weight=0.5)
    assert known == (Measured("V100", 2, 2.5, 2),)


def test_without_a_belief_the_first_measurement_counts_in_full() -> None:
    assert measure((), "V100", 2, 3.0, prior_s=None, weight=0.5)[0].seconds_per_step == 3.0


def test_what_a_type_learned_at_one_size_corrects_the_others_too() -> None:
    known = book(SpeedPoint("V100", 1, 1.0), SpeedPoint("V100", 2, 0.6))
    known = known.with_learned(Learned("kind", speed=(Measured("V100", 2, 0.9),)))
    assert known.seconds_per_step("kind", "V100", 2) == pytest.approx(0.9)
    assert known.seconds_per_step("kind", "V100", 1) == pytest.approx(1.5)


def test_a_job_measured_at_two_sizes_is_believed_at_both() -> None:
    measured = (Measured("V100", 1, 2.0), Measured("V100", 2, 1.5))
    known = book(SpeedPoint("V100", 1, 1.0), SpeedPoint("V100", 2, 0.5))
    speeds = known.speeds_of_job("kind", measured, "V100", (1, 2, 4))
    assert (speeds[1], speeds[2]) == pytest.approx((2.0, 1.5))
    assert speeds[4] == pytest.approx(2.5 * known.seconds_per_step("kind", "V100", 4))


def test_what_a_job_showed_on_other_gpus_is_carried_over_as_a_ratio() -> None:
    known = book(SpeedPoint("V100", 1, 1.0), SpeedPoint("K80", 1, 4.0))
    speeds = known.speeds_of_job("kind", (Measured("V100", 1, 1.5),), "K80", (1,))
    assert speeds[1] == pytest.approx(6.0)


def test_a_new_profile_drops_what_was_learned_beside_the_old_one() -> None:
    known = book(SpeedPoint("V100", 1, 1.0)).with_learned(Learned("kind", checkpoint_s=9.0))
    assert known.with_profile(Profile("kind")).learned_of("kind") == Learned("kind")


def test_a_book_is_never_changed_in_place() -> None:
    before = book(SpeedPoint("V100", 1, 1.0))
    before.with_learned(Learned("kind", speed=(Measured("V100", 1, 2.0),)))
    assert before.seconds_per_step("kind", "V100", 1) == 1.0


def test_a_book_survives_a_dump() -> None:
    known = book(SpeedPoint("V100", 1, 1.0)).with_learned(Learned("kind", process_init_s=9.0))
    assert ProfileBook.from_rows(known.rows()) == known


def on(gpus: int, hosts: int, *points: SpeedPoint) -> float:
    return speeds_of_profile(Profile("kind", speed=points), "V100").on(gpus, hosts)


def test_a_further_host_is_assumed_to_cost_half_as_much_as_a_further_gpu() -> None:
    alone = SpeedPoint("V100", 1, 10.0)
    one, two, three = (on(4, hosts, alone) for hosts in (1, 2, 3))
    further_gpu = 10.0 * 0.02288
    assert two - one == pytest.approx(further_gpu / 2)
    assert three - two == pytest.approx(further_gpu / 2)


def test_a_size_recorded_on_one_host_and_on_two_says_what_a_further_host_costs() -> None:
    points = (SpeedPoint("V100", 4, 1.0), SpeedPoint("V100", 4, 1.3, hosts=2))
    assert on(4, 2, *points) == 1.3
    assert on(4, 3, *points) == pytest.approx(1.6)
    assert on(8, 2, *points) == pytest.approx(on(8, 1, *points) + 0.3)


def test_a_type_recorded_only_on_several_hosts_gives_times_on_one() -> None:
    two = SpeedPoint("V100", 8, 2.0, hosts=2)
    assert on(8, 2, two) == 2.0
    assert on(8, 1, two) == pytest.approx(2.0 * default_curve(8) / curve_on(8, 2))


def test_a_host_that_seems_to_save_time_costs_nothing() -> None:
    points = (SpeedPoint("V100", 4, 1.0), SpeedPoint("V100", 4, 0.9, hosts=2))
    assert on(4, 3, *points) == 1.0
