"""Saves of optimizers by the script: ``save``, ``save_weights`` and TensorFlow's checkpoints.

Does: calls back when such a save begins. Only then do the slots of an optimizer at the end of a
``fit`` matter to a restarted script, which repeats the save.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

SAVING = (
    ("keras.src.optimizers.base_optimizer", "BaseOptimizer", "save_own_variables"),
    (
        "keras.src.legacy.saving.legacy_h5_format",
        None,
        "save_optimizer_weights_to_hdf5_group",
    ),
    ("tensorflow.python.checkpoint.checkpoint", "Checkpoint", "_write"),
)
"""Module, class and name of the functions that write the state of an optimizer."""


def watch(note: Callable[[], None]) -> None:
    """Call ``note`` before each save."""
    for module, kind, name in SAVING:
        owner: Any = importlib.import_module(module)
        owner = getattr(owner, kind, None) if kind else owner
        original = getattr(owner, name, None)
        if original is not None:
            setattr(owner, name, _noted(original, note))


def _noted(original: Callable[..., Any], note: Callable[[], None]) -> Callable[..., Any]:
    @functools.wraps(original)
    def save(*arguments: Any, **more: Any) -> Any:
        note()
        return original(*arguments, **more)

    return save
