"""The command pause, and its older name halt."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from reshape_controller.cli.jobs import commands
from reshape_controller.cli.main import build
from reshape_controller.store.protocol import RequestKind
from reshape_gpu.values import JobView

runner = CliRunner()


@pytest.mark.parametrize("every_command", [False, True])
@pytest.mark.parametrize("word", ["pause", "halt"])
def test_both_words_ask_for_a_pause(
    monkeypatch: pytest.MonkeyPatch, word: str, every_command: bool
) -> None:
    asked: list[tuple[str, str]] = []

    def asker(_: object, action: str) -> Callable[[str], JobView]:
        def ask(job: str) -> JobView:
            asked.append((action, job))
            return JobView(job, job, "ada", "halted", "none", "", 1, 0.0)

        return ask

    monkeypatch.setattr(commands, "_asker", asker)
    monkeypatch.setattr(commands, "client", lambda _: None)
    done = runner.invoke(build(() if every_command else (word,)), [word, "train"])
    assert done.exit_code == 0, done.output
    assert asked == [("pause", "train")]


def test_the_help_names_pause_and_not_its_older_name() -> None:
    text = runner.invoke(build(), ["--help"]).output
    assert "Pause jobs: save a checkpoint" in text
    assert "halt" not in text


def test_a_request_in_the_inbox_may_use_either_word() -> None:
    assert RequestKind("pause") is RequestKind("halt") is RequestKind.HALT
    with pytest.raises(ValueError, match="'stop'"):
        RequestKind("stop")
