"""The table request x program: what a request does to a program, by what the program can do.

Does: says for each pair whether the job saves, loses steps, or keeps its GPUs, and why a plan may
not reshape a job. docs/architecture.md has the same table; a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from reshape_sidecar.wire import Saves


class Request(StrEnum):
    """Why a running job is to stop."""

    SHRINK = "shrink"
    GROW = "grow"
    """Also a move to another host."""
    DRAIN = "drain"
    PAUSE = "pause"
    CANCEL = "cancel"
    HOST_LOST = "host lost"


class Program(StrEnum):
    """What a job's program can do at a request to stop."""

    BOUNDARY = "saves at a boundary"
    SIGTERM = "saves on SIGTERM"
    UNSAVED = "cannot save"
    """Or is not known to."""
    MAY_RESTART = "may restart"
    """It cannot save, and its record says ``may_restart: true``."""

    @property
    def loses(self) -> bool:
        """Whether a stop loses its steps since its last checkpoint, if it has any."""
        return self in _LOSING


_LOSING = (Program.UNSAVED, Program.MAY_RESTART)


class Effect(StrEnum):
    """The effect of a request."""

    SAVED = "saved first"
    LOST = "at once, loss counted"
    LOST_LATER = "after a wait, loss counted"
    """The wait is ``limits.unsaved_wait_s``."""
    REFUSED = "refused"
    ENDED = "at once"


_LOST = dict.fromkeys(Program, Effect.LOST)
_FOR_OTHERS = dict.fromkeys(Program, Effect.SAVED) | {
    Program.UNSAVED: Effect.REFUSED,
    Program.MAY_RESTART: Effect.LOST,
}
_BY_PERSON = _FOR_OTHERS | {Program.UNSAVED: Effect.LOST_LATER}

TABLE: Mapping[Request, Mapping[Program, Effect]] = {
    Request.SHRINK: _FOR_OTHERS,
    Request.GROW: _FOR_OTHERS,
    Request.DRAIN: _BY_PERSON,
    Request.PAUSE: _BY_PERSON,
    Request.CANCEL: dict.fromkeys(Program, Effect.ENDED),
    Request.HOST_LOST: _LOST,
}


SAVES_ALWAYS = (None, Saves.BOUNDARY)
"""Words of a SideCar about a program that saves at a boundary; None: the SideCar is of level 1."""


def program_of(saves: Saves | None, *, has_resumed: bool, may_restart: bool) -> Program:
    """Return what a program can do. ``saves``: its SideCar's word; None: a SideCar of level 1,
    which was never asked. ``has_resumed``: it has once gone on from a step that it had saved."""
    if saves in SAVES_ALWAYS:
        return Program.BOUNDARY
    if saves is Saves.SIGTERM and has_resumed:
        return Program.SIGTERM
    return Program.MAY_RESTART if may_restart else Program.UNSAVED


def refusal(program: Program, saves: Saves | None) -> str:
    """Return why a plan may not reshape a job with this program; empty if it may."""
    if TABLE[Request.SHRINK][program] is not Effect.REFUSED:
        return ""
    if saves is Saves.SIGTERM:
        return (
            "it handles SIGTERM itself, and has not yet gone on from a step that it saved; "
            "may_restart is false"
        )
    return "it cannot save its steps, and may_restart is false"
