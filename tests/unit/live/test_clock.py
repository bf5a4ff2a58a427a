"""A start with a wrong clock: the time goes on by the boot, and what is in doubt is kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reshape_controller.live.clock import DOUBT_S, FAR_S, NOTE_EVERY_S, ClockNote, WallClock

DAY_S = 86_400.0
NOW_S = 1_800_000_000.0
JUMPS_S = {"-1 d": -DAY_S, "+1 h": 3600.0, "+10 d": 10 * DAY_S, "+1 year": 365 * DAY_S}


class Machine:
    """A machine whose clock may be wrong; ``true_s`` is the time that has passed in truth."""

    def __init__(self, folder: Path) -> None:
        self.true_s, self.wrong_s = 5000.0, 0.0
        self.note = ClockNote(folder / "clock", lambda: self.true_s)
        self.log_end_s = 0.0

    def wall_s(self) -> float:
        return NOW_S + self.true_s + self.wrong_s

    def starts(self) -> WallClock:
        """A daemon starts, as ``Daemon`` and ``Loop`` do it."""
        clock = WallClock(self.wall_s, lambda: self.true_s)
        noted_s = self.note.now_s()
        if noted_s is not None:
            clock.go_on_from(noted_s)
        clock.not_before(self.log_end_s)
        return clock

    def runs(self, clock: WallClock, seconds: float) -> None:
        """It runs, writes records and notes the time, and is killed then."""
        end_s = self.true_s + seconds
        while self.true_s < end_s:
            self.true_s += min(max(NOTE_EVERY_S, seconds / 100), end_s - self.true_s)
            self.note.write(clock.now_s())
            self.log_end_s = clock.now_s()

    def error_s(self, clock: WallClock) -> float:
        return abs(clock.now_s() - (NOW_S + self.true_s))


@pytest.mark.parametrize("jump", JUMPS_S)
def test_one_start_with_a_wrong_clock_and_then_right_leaves_the_time_right(
    tmp_path: Path, jump: str
) -> None:
    machine = Machine(tmp_path)
    machine.runs(machine.starts(), 600.0)
    machine.wrong_s = JUMPS_S[jump]
    machine.true_s += 30.0
    clock = machine.starts()
    assert machine.error_s(clock) < 1.0
    assert not clock.trusted(), "nothing may be deleted"
    assert "this machine's clock is" in clock.problem()
    assert ("ahead of" if machine.wrong_s > 0 else "behind") in clock.problem()
    machine.runs(clock, 60.0)
    assert machine.error_s(clock) < 60.0
    machine.wrong_s = 0.0
    machine.true_s += 5.0
    clock = machine.starts()
    assert machine.error_s(clock) < 60.0
    machine.runs(clock, 600.0)
    assert machine.error_s(clock) < 1.0


def test_a_clock_is_trusted_again_once_it_has_agreed_for_a_day(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.runs(machine.starts(), 60.0)
    machine.wrong_s = 3600.0
    clock = machine.starts()
    machine.runs(clock, 60.0)
    machine.wrong_s = 0.0
    machine.runs(clock, DOUBT_S - 100.0)
    assert not clock.trusted()
    assert "were far" in clock.problem() or "was far" in clock.problem()
    machine.runs(clock, 200.0)
    assert clock.trusted()
    assert clock.problem() == ""


def test_after_another_boot_a_clock_far_from_the_logs_end_is_in_doubt(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.runs(machine.starts(), 60.0)
    (tmp_path / "clock").write_text("another-boot 1.0 2.0\n")
    for gap_s, trusted in ((1800.0, True), (10 * DAY_S, False)):
        machine.wrong_s = gap_s
        clock = machine.starts()
        assert clock.now_s() == pytest.approx(machine.wall_s()), "nothing says that it is wrong"
        assert clock.trusted() is trusted


def test_a_first_start_and_one_after_a_long_stop_in_one_boot_are_in_no_doubt(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    clock = machine.starts()
    assert clock.trusted()
    machine.runs(clock, 60.0)
    machine.true_s += 30 * DAY_S
    assert machine.starts().trusted()


def test_a_clock_that_drifts_or_is_slewed_stays_trusted(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    clock = machine.starts()
    for _ in range(100):
        machine.wrong_s += 0.5
        machine.runs(clock, 10.0)
    assert clock.trusted()
    assert abs(clock.off_s()) < FAR_S


@pytest.mark.parametrize(
    "damage", ["empty", "words", "fifo", "folder", "loop", "zeros", "later", "nan", "endless"]
)
def test_a_damaged_note_says_nothing_and_stops_nothing(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "clock"
    note = ClockNote(path, lambda: 100.0)
    note.write(7.0)
    text = path.read_text()
    assert note.now_s() == 7.0
    assert path.stat().st_mode & 0o777 == 0o600
    path.unlink()
    match damage:
        case "empty":
            path.touch()
        case "words":
            path.write_text("x y z")
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "loop":
            path.symlink_to(path)
        case "zeros":
            path.write_bytes(bytes(10_000))
        case "later":
            path.write_text(text.replace("100.000", "900.000"))
        case "nan":
            path.write_text(text.replace("7.000", "nan"))
        case "endless":
            path.write_text(text.replace("7.000", "1e300"))
    assert note.now_s() is None
    note.write(8.0)
    assert note.now_s() == (None if damage == "folder" else 8.0)
