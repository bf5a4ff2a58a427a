"""A loop by `job.batches` takes its own checkpoints, and names the writer of any other one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reshape_sidecar.claims import CheckpointError
from reshape_sidecar.loop_origin import PYTORCH, TENSORFLOW, position_of


def test_a_position_without_a_framework_is_of_pytorch(tmp_path: Path) -> None:
    (tmp_path / "position.json").write_text(json.dumps({"seed": 1, "samples": 5}))
    assert position_of(tmp_path, PYTORCH) == {"seed": 1, "samples": 5}
    with pytest.raises(CheckpointError, match="by a PyTorch loop, and this is a TensorFlow loop"):
        position_of(tmp_path, TENSORFLOW)


def test_a_position_of_tensorflow_is_refused_by_pytorch(tmp_path: Path) -> None:
    (tmp_path / "position.json").write_text(json.dumps({"framework": TENSORFLOW, "batch": 3}))
    assert position_of(tmp_path, TENSORFLOW) == {"batch": 3}
    with pytest.raises(CheckpointError, match="by a TensorFlow loop, and this is a PyTorch loop"):
        position_of(tmp_path, PYTORCH)


def test_a_checkpoint_of_another_program_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"was not written by job\.batches; give an empty"):
        position_of(tmp_path, PYTORCH)
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(CheckpointError, match="was written by a `fit` of Keras"):
        position_of(tmp_path, TENSORFLOW)
