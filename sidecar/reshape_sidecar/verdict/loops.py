"""Loops of the script's own: what a body carries, what a script asks to keep, and what is unknown.

Standard library only: a session imports this module.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from reshape_sidecar import foreign
from reshape_sidecar.hook.exactness import UNKNOWN, Verdict
from reshape_sidecar.hook.values import Inline, InlineReader, Unkeepable
from reshape_sidecar.verdict import carried

REMEDY = "keep it with job.keep"
KEEP_FILE = "reshape-keep.json"
"""What the script keeps by ``job.keep``, beside the files of the loop in a checkpoint."""
KEEP_BYTES_MAX = 1 << 28
OWN_SAVE = "the script saves its state itself: `reshape verify` compares a run that was stopped"
DRAWS = (
    "its steps draw random numbers ({}), which begin again at a restart unless the script saves"
    " and restores the generators"
)
BEHIND_STEP = "step_done is not the last thing that its loop does"
LOOKS = 3
"""Steps after which it looks whether the generators have drawn."""


def why_no_step() -> str:
    """Return why no step can follow a save in ``step_done``, which calls this; empty if one can.

    What a script does behind it would be cut, or done twice.
    """
    frame, package = sys._getframe(1), __name__.partition(".")[0]
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(f"{package}."):
        frame = frame.f_back
    return "" if carried.ends_its_loop(frame) else BEHIND_STEP


class Keep(SimpleNamespace):
    """Attributes that every checkpoint of the job holds; ``job.keep`` returns it."""

    def add(self, values: dict[str, Any], saved: dict[str, Any]) -> None:
        """Add attributes that are not there; one in ``saved`` has that value. Raises TypeError."""
        for name in values.keys() - vars(self).keys():
            setattr(self, name, saved.get(name, values[name]))

    def __setattr__(self, name: str, value: Any) -> None:
        """Raise TypeError for a value that has no exact form."""
        _encoded(name, value)
        vars(self)[name] = value

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError: the attributes are those that were given."""
        raise AttributeError(f"job.keep was given no `{name}`: write job.keep({name}=...) first")

    def write(self, folder: Path) -> None:
        """Write all attributes into a checkpoint; none, no file. Raises OSError, TypeError."""
        values = {name: _encoded(name, value) for name, value in vars(self).items()}
        if values:
            (folder / KEEP_FILE).write_text(json.dumps(values), encoding="utf-8")


def _encoded(name: str, value: Any) -> Any:
    try:
        return Inline().encode(value)
    except Unkeepable as error:
        raise TypeError(
            f"job.keep: {name} is a {error}, which a checkpoint cannot hold; give numbers, texts,"
            " lists, dictionaries or NumPy arrays (of a tensor, its `.item()` or `.tolist()`)"
        ) from None


def read(checkpoint: Path | None) -> dict[str, Any]:
    """Return what the script kept by ``job.keep`` when a checkpoint was written."""
    if checkpoint is None:
        return {}
    try:
        values = json.loads(foreign.read(checkpoint / KEEP_FILE, KEEP_BYTES_MAX))
    except FileNotFoundError:
        return {}
    return {name: InlineReader().decode(value) for name, value in values.items()}


class OwnState:
    """The verdict on a loop by ``job.step_done``, whose checkpoint the script writes itself."""

    def __init__(self) -> None:
        self._looks = LOOKS
        self._before: dict[str, Any] | None = None
        self._drawn: set[str] = set()

    def step_ended(self) -> Verdict | None:
        """Return the verdict after a step, if it is new."""
        if self._looks < 0:
            return None
        self._looks -= 1
        now, before = _generators(), self._before
        self._before = now if self._looks >= 0 else None
        drawn = {name for name in now if before is not None and before.get(name) != now[name]}
        if before is not None and drawn <= self._drawn:
            return None
        self._drawn |= drawn
        verdict = Verdict(UNKNOWN, OWN_SAVE)
        if self._drawn:
            verdict = verdict.worse(DRAWS.format(", ".join(sorted(self._drawn))), UNKNOWN)
        return verdict


def _generators() -> dict[str, Any]:
    """Return what differs once a global generator of a library has drawn."""
    found: dict[str, Any] = {"random": random.getstate()}
    if (numpy := sys.modules.get("numpy")) is not None and hasattr(numpy, "random"):
        name, keys, *rest = numpy.random.get_state()
        found["numpy"] = (name, keys.tobytes(), rest)
    if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "default_generator"):
        found["torch"] = torch.default_generator.get_state().numpy().tobytes()
    return found
