"""Ctrl-C while the modules of a command are still being imported: no traceback, the usual code."""

from __future__ import annotations

import pytest

from reshape_controller.cli import main


def test_ctrl_c_before_a_command_runs_ends_it_as_one_that_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(words: object, *, names_alone: bool) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "build", interrupted)
    with pytest.raises(SystemExit) as ended:
        main._run()
    assert ended.value.code == 130
    assert capsys.readouterr() == ("", "")
