"""What a program can do, as the engine judges it, and what that means for plans."""

from __future__ import annotations

import pytest

from reshape_controller.core.stop_table import TABLE, Effect, Program, Request, program_of, refusal
from reshape_sidecar.wire import Saves


@pytest.mark.parametrize(
    ("saves", "has_resumed", "may_restart", "program"),
    [
        (Saves.BOUNDARY, False, False, Program.BOUNDARY),
        (Saves.BOUNDARY, False, True, Program.BOUNDARY),
        (Saves.SIGTERM, True, False, Program.SIGTERM),
        (Saves.SIGTERM, False, False, Program.UNSAVED),
        (Saves.SIGTERM, False, True, Program.MAY_RESTART),
        (Saves.NEVER, False, False, Program.UNSAVED),
        (Saves.NEVER, True, False, Program.UNSAVED),
        (Saves.NEVER, False, True, Program.MAY_RESTART),
        (None, False, False, Program.BOUNDARY),
    ],
)
def test_a_program_is_judged_by_its_sidecars_word_and_its_record(
    saves: Saves | None, has_resumed: bool, may_restart: bool, program: Program
) -> None:
    assert program_of(saves, has_resumed=has_resumed, may_restart=may_restart) is program


def test_only_a_program_that_cannot_save_is_refused_and_the_reason_says_why() -> None:
    refused = [program for program in Program if refusal(program, Saves.NEVER)]
    assert refused == [Program.UNSAVED]
    assert "cannot save" in refusal(Program.UNSAVED, Saves.NEVER)
    assert "handles SIGTERM itself" in refusal(Program.UNSAVED, Saves.SIGTERM)


def test_the_table_has_every_pair_and_loses_nothing_of_a_program_that_saves() -> None:
    assert set(TABLE) == set(Request)
    for request, effects in TABLE.items():
        assert set(effects) == set(Program)
        for program, effect in effects.items():
            by_choice = request not in (Request.HOST_LOST, Request.CANCEL)
            lost = effect in (Effect.LOST, Effect.LOST_LATER)
            assert not (by_choice and lost and not program.loses), (request, program)
