"""The folders into which a trainer writes: whether a restart has others than the start before.

A script that names such a folder by the clock has one for each start. Training goes on all the
same, and its logs and saves are in several folders.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from reshape_sidecar.hook.log import complain

Folders = Mapping[str, str]
"""Absolute paths, by the name that a script gives them under."""


def of_hugging_face(trainer: Any) -> dict[str, str]:
    """Return the folders of a ``transformers.Trainer``."""
    folder = trainer.args.output_dir
    return {"output_dir": os.path.abspath(folder)} if folder else {}


def of_lightning(trainer: Any) -> dict[str, str]:
    """Return the folders of a Trainer of Lightning before it has made any."""
    return {name: os.path.abspath(path) for name, path in _of_lightning(trainer)}


def _of_lightning(trainer: Any) -> Iterator[tuple[str, str]]:
    yield "default_root_dir", trainer.default_root_dir
    for logger in trainer.loggers:
        if logger.save_dir:
            name = f"save_dir of {type(logger).__name__}"
            yield name, os.path.join(logger.save_dir, str(logger.name or ""))
    for callback in trainer.checkpoint_callbacks:
        if getattr(callback, "dirpath", None):
            yield f"dirpath of {type(callback).__name__}", callback.dirpath


def moved(before: Folders, now: Folders, *, says: bool) -> str | None:
    """Return what to note if a restart has another folder; None if not.

    says: whether this process logs it, with the folders.
    """
    others = {name: now[name] for name in now if before.get(name, now[name]) != now[name]}
    if not others:
        return None
    name, folder = next(iter(others.items()))
    remedy = "name it without the clock"
    if says:
        complain(f"{name} is {folder}, and it was {before[name]} before the restart: {remedy}")
    return f"each start has another {name}, so logs and saves are in several folders: {remedy}"
