"""All workers of a job save after the same step, however late each of them learns of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_sidecar.hook import save_barrier
from reshape_sidecar.hook.progress import ProgressReporter
from reshape_sidecar.hook.report import ReportSender
from reshape_sidecar.hook.save_barrier import SaveBarrier
from reshape_sidecar.hook.settings import HookSettings
from reshape_sidecar.hook.stop import Stop


class AnHour:
    """An hour that passes second by second; then the other workers know of the step."""

    def __init__(self, meeting: Path) -> None:
        self.now_s = 0.0
        self._meeting = meeting

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += 1.0
        if self.now_s >= 3600.0:
            self._meeting.write_text("7 129")


@pytest.mark.parametrize("taken_back", [False, True], ids=["asked", "taken back"])
def test_the_chief_holds_its_step_until_the_others_know_after_which_one_they_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken_back: bool
) -> None:
    """The controller may be away for long; a chief that saves alone waits in that save for ever."""
    keep_running, meeting = tmp_path / "keep-running", tmp_path / "meeting"
    settings = HookSettings(generation=7, workers=2, meeting=meeting, keep_running=keep_running)
    stop = Stop(keep_running)
    monkeypatch.setattr(stop, "requested", lambda: not taken_back)
    chief = SaveBarrier(settings, ProgressReporter(ReportSender(None), 7, None), stop)
    hour = AnHour(meeting)
    monkeypatch.setattr(save_barrier, "time", hour)
    chief.raise_barrier(128)
    assert hour.now_s == 3600.0
    assert chief.due(129)
