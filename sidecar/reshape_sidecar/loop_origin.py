"""Which loop has written a checkpoint, so that a loop refuses the files of another one by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reshape_sidecar.claims import CheckpointError

POSITION_FILE = "position.json"
PYTORCH, TENSORFLOW = "PyTorch", "TensorFlow"
FRAMEWORK = "framework"
"""Field of the position; a position without it is PyTorch's."""


def position_of(folder: Path, framework: str) -> dict[str, Any]:
    """Return the position in a checkpoint that a loop of ``framework`` by ``job.batches`` wrote.

    Raises CheckpointError, which names the program that wrote another one.
    """
    writer = "was not written by job.batches"
    if (folder / POSITION_FILE).exists():
        position: dict[str, Any] = json.loads((folder / POSITION_FILE).read_bytes())
        found = position.pop(FRAMEWORK, PYTORCH)
        if found == framework:
            return position
        writer = f"was written by a {found} loop, and this is a {framework} loop"
    elif (folder / "state.json").exists():
        writer = "was written by a `fit` of Keras, and this is a loop by job.batches"
    raise CheckpointError(f"checkpoint {folder} {writer}; give an empty checkpoint folder")
