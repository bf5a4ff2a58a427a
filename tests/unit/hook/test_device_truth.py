"""The device truth file, and the pacer that makes steps last as long as it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reshape_sidecar import device_truth
from reshape_sidecar.device_truth import DeviceTruthError, Follower, Pacer


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now_s += seconds


def pacer(clock: Clock, step_s: float | None) -> Pacer:
    return Pacer(lambda: step_s, clock, clock.sleep)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_seconds_per_step_are_found_by_type_then_by_name_and_scaled(tmp_path: Path) -> None:
    truth = device_truth.load(
        write(
            tmp_path / "truth.json",
            '{"seconds_per_step": {"lenet": {"1": 0.2, "2": 0.11}, "job-2": {"1": 0.5}},'
            ' "factors": {"job-1": 1.1}}',
        )
    )
    assert truth.step_s("lenet", "job-1", 2) == pytest.approx(0.121)
    assert truth.step_s("lenet", "job-9", 1) == 0.2
    assert truth.step_s(None, "job-2", 1) == 0.5
    assert truth.step_s("lenet", "job-1", 4) is None
    assert truth.step_s("other", "job-1", 1) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "expected an object"),
        ('{"step": {}}', "expected an object"),
        ('{"seconds_per_step": {"a": 1}}', "a is not an object"),
        ('{"seconds_per_step": {"a": {"two": 1}}}', "not a number of devices"),
        ('{"seconds_per_step": {"a": {"0": 1}}}', "not a number of devices"),
        ('{"seconds_per_step": {"a": {"1": -1}}}', "not a positive number"),
        ('{"factors": {"a": true}}', "not a positive number"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path / "truth.json", text)
    with pytest.raises(DeviceTruthError, match=message) as raised:
        device_truth.load(path)
    assert str(path) in str(raised.value)


def test_the_first_step_is_not_paced_and_the_others_end_on_schedule() -> None:
    clock = Clock()
    paced = pacer(clock, 0.5)
    clock.now_s += 7.0
    paced.step_ended()
    first_s = clock.now_s
    for k in range(1, 6):
        clock.now_s += 0.1
        paced.step_ended()
        assert clock.now_s == pytest.approx(first_s + k * 0.5)
    assert paced.late_steps == 0


def test_a_late_step_is_counted_and_moves_the_schedule() -> None:
    clock = Clock()
    paced = pacer(clock, 0.5)
    paced.step_ended()
    clock.now_s += 0.6
    paced.step_ended()
    assert paced.late_steps == 1
    late_s = clock.now_s
    paced.step_ended()
    assert clock.now_s == pytest.approx(late_s + 0.5)


def test_a_small_delay_is_not_late_and_the_next_step_makes_up_for_it() -> None:
    clock = Clock()
    paced = pacer(clock, 0.5)
    paced.step_ended()
    began_s = clock.now_s
    clock.now_s += 0.54
    paced.step_ended()
    assert paced.late_steps == 0
    paced.step_ended()
    assert clock.now_s == pytest.approx(began_s + 1.0)


def test_for_short_steps_twenty_milliseconds_are_not_late() -> None:
    clock = Clock()
    paced = pacer(clock, 0.01)
    paced.step_ended()
    clock.now_s += 0.029
    paced.step_ended()
    assert paced.late_steps == 0


def test_time_that_is_no_step_moves_the_schedule_and_is_not_late() -> None:
    clock = Clock()
    paced = pacer(clock, 0.5)
    paced.step_ended()
    began_s = clock.now_s
    clock.now_s += 3.0
    paced.pause(3.0)
    clock.now_s += 0.1
    paced.step_ended()
    assert clock.now_s == pytest.approx(began_s + 3.5)
    assert paced.late_steps == 0


def test_several_steps_at_once_take_the_time_of_several() -> None:
    clock = Clock()
    paced = pacer(clock, 0.5)
    paced.step_ended(4)
    began_s = clock.now_s
    paced.step_ended(4)
    assert clock.now_s == pytest.approx(began_s + 2.0)


@given(
    st.floats(min_value=0.001, max_value=2),
    st.lists(st.floats(min_value=0, max_value=0.999), min_size=1, max_size=30),
)
def test_a_machine_that_is_fast_enough_keeps_every_step_on_schedule(
    step_s: float, parts: list[float]
) -> None:
    clock = Clock()
    paced = pacer(clock, step_s)
    paced.step_ended()
    began_s = clock.now_s
    for part in parts:
        clock.now_s += part * step_s
        paced.step_ended()
    assert clock.now_s == pytest.approx(began_s + len(parts) * step_s)
    assert paced.late_steps == 0


def test_the_file_is_followed_while_it_changes(tmp_path: Path) -> None:
    path = write(tmp_path / "truth.json", '{"seconds_per_step": {"a": {"2": 0.5}}}')
    clock = Clock()
    said: list[str] = []
    follower = Follower(path, "a", "job", 2, said.append, clock)
    assert follower.step_s() == 0.5
    write(path, '{"seconds_per_step": {"a": {"2": 0.25 }}}')
    clock.now_s += 2
    assert follower.step_s() == 0.25
    write(path, "{")
    clock.now_s += 2
    assert follower.step_s() == 0.25
    assert len(said) == 1
    assert "keep their last pace" in said[0]


def test_a_job_that_the_file_does_not_know_is_not_paced_and_says_so_once(tmp_path: Path) -> None:
    path = write(tmp_path / "truth.json", '{"seconds_per_step": {"a": {"2": 0.5}}}')
    clock = Clock()
    said: list[str] = []
    follower = Follower(path, "a", "job", 4, said.append, clock)
    for _ in range(3):
        assert follower.step_s() is None
        clock.now_s += 2
    assert len(said) == 1
    assert "not paced" in said[0]
    paced = Pacer(follower.step_s, clock, clock.sleep)
    before_s = clock.now_s
    paced.step_ended()
    paced.step_ended()
    assert clock.now_s == before_s
