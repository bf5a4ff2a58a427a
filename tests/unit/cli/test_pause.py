"""The command pause, and its older name halt."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from reshape_controller.cli.jobs import commands
from reshape_controller.cli.main import build
from reshape_controller.store.protocol import RequestKind

runner = CliRunner()


@pytest.mark.parametrize("every_command", [False, True])
@pytest.mark.parametrize("word", ["pause", "halt"])
def test_both_words_ask_for_a_pause(
    monkeypatch: pytest.MonkeyPatch, word: str, every_command: bool
) -> None:
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(commands, "_act", lambda action, job, *_: asked.append((action, job)))
    done = runner.invoke(build(() if every_command else (word,)), [word, "train"])
    assert done.exit_code == 0, done.output
    assert asked == [("pause", "train")]


def test_the_help_names_pause_and_not_its_older_name() -> None:
    text = runner.invoke(build(), ["--help"]).output
    assert "Pause a job: save a checkpoint" in text
    assert "halt" not in text


def test_a_request_in_the_inbox_may_use_either_word() -> None:
    assert RequestKind("pause") is RequestKind("halt") is RequestKind.HALT
    with pytest.raises(ValueError, match="'stop'"):
        RequestKind("stop")
