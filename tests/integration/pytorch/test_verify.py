"""`reshape verify` on a PyTorch loop: stopped twice on other GPU counts it comes out the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.pytorch_bed import EXAMPLES, PYTHON

pytestmark = [pytest.mark.pytorch, pytest.mark.timeout(600)]
STEPS = 12


def verify(folder: Path, text: str, sizes: str) -> tuple[int, Any]:
    """Verify a script; return the exit code and the report."""
    (folder / "train.py").write_text(text)
    command = [str(PYTHON), "train.py", "--epochs", "2", "--workers", "0"]
    record = {"name": "small", "command": command, "optional_gpus": [1, 2], "framework": "pytorch"}
    (folder / "record.json").write_text(json.dumps(record))
    line = [sys.executable, "-m", "reshape_controller.cli.main", "verify", "record.json"]
    line += ["--steps", str(STEPS), "--simulated-gpus", "2", "--sizes", sizes, "--output", "json"]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_loop_by_job_batches_is_exact_on_2_1_2(tmp_path: Path) -> None:
    text = (EXAMPLES / "train_plain.py").read_text()
    code, report = verify(tmp_path, text, "2,1,2")
    found = report["verification"]
    assert (found["verdict"], found["steps"]) == ("exact", STEPS), report
    assert "equal within 1e-05" in found["reason"]
    assert (code, report["expected"], report["differences"]) == (0, "exact", [])
    assert all(4 <= stop < STEPS for stop in report["stops"])


def test_state_that_no_checkpoint_holds_is_found_in_the_weights(tmp_path: Path) -> None:
    """The script reports no loss, and its own count of steps scales the gradients."""
    text = (EXAMPLES / "train_plain.py").read_text()
    text = text.replace("job.metrics(loss=mean.item())", "count += 1")
    text = text.replace("    for epoch in job.epochs", "    count = 1\n    for epoch in job.epochs")
    text = text.replace("loss = loss_of(model(x), y)", "loss = loss_of(model(x), y) * (count % 5)")
    code, report = verify(tmp_path, text, "1,1,1")
    assert (code, report["verification"]["verdict"]) == (1, "steps-only"), report
    assert ": weights is" in report["differences"][0]
