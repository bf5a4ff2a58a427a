"""`reshape verify` on PyTorch: stopped twice on other GPU counts training comes out the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.pytorch_bed import EXAMPLES, PYTHON
from tests.support.ranks_bed import SCRIPTS

pytestmark = [pytest.mark.pytorch, pytest.mark.timeout(600)]
STEPS = 12


def verify(
    folder: Path,
    text: str,
    sizes: str,
    arguments: tuple[str, ...] = ("--epochs", "2", "--workers", "0"),
) -> tuple[int, Any]:
    """Verify a script; return the exit code and the report."""
    (folder / "train.py").write_text(text)
    command = [str(PYTHON), "train.py", *arguments]
    record = {"name": "small", "command": command, "optional_gpus": [1, 2], "framework": "pytorch"}
    (folder / "record.json").write_text(json.dumps(record))
    line = [sys.executable, "-m", "reshape_controller.cli.main", "verify", "record.json"]
    line += ["--steps", str(STEPS), "--simulated-gpus", "2", "--sizes", sizes, "--output", "json"]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_loop_by_job_batches_is_exact_on_2_1_2(tmp_path: Path) -> None:
    text = (EXAMPLES / "train.py").read_text()
    code, report = verify(tmp_path, text, "2,1,2")
    found = report["verification"]
    assert (found["verdict"], found["steps"]) == ("exact", STEPS), report
    assert "equal within 1e-05, weights within 0.0001, as other" in found["reason"]
    assert (code, report["expected"], report["differences"]) == (0, "exact", [])
    assert all(4 <= stop < STEPS for stop in report["stops"])
    first, second = report["proofs"]
    assert first.startswith(f"2 → 1 GPU at step {report['stops'][0]}: first step agrees (loss ")
    assert second.startswith(f"1 → 2 GPUs at step {report['stops'][1]}: first step agrees (loss ")


def test_state_that_no_checkpoint_holds_is_found_in_the_weights(tmp_path: Path) -> None:
    """The script reports no loss, and its own count of steps scales the gradients."""
    text = (EXAMPLES / "train.py").read_text()
    text = text.replace("job.metrics(loss=mean.item())", "count += 1")
    text = text.replace("    for epoch in job.epochs", "    count = 1\n    for epoch in job.epochs")
    text = text.replace("loss = loss_of(model(x), y)", "loss = loss_of(model(x), y) * (count % 5)")
    code, report = verify(tmp_path, text, "1,1,1")
    assert (code, report["verification"]["verdict"]) == (1, "steps-only"), report
    assert ": weight " in report["differences"][0]
    assert " in norm, " in report["differences"][0]
    assert "first step differs: loss " in report["proofs"][0]


def test_an_unmodified_script_with_the_trainer_of_hugging_face_is_exact(tmp_path: Path) -> None:
    text = (SCRIPTS / "hf_train.py").read_text()
    arguments = (
        *("--output_dir", "out", "--use_cpu", "--report_to", "none", "--save_strategy", "no"),
        *("--max_steps", str(STEPS), "--per_device_train_batch_size", "8"),
    )
    code, report = verify(tmp_path, text, "2,1,2", arguments)
    found = report["verification"]
    assert (code, found["verdict"], found["steps"]) == (0, "exact", STEPS), report
    assert report["expected"] == "exact"
    assert "equal within 1e-05, weights within " in found["reason"]


def test_an_unmodified_script_with_lightning_is_exact(tmp_path: Path) -> None:
    text = (SCRIPTS / "lightning_fit.py").read_text()
    arguments = ("--epochs", "2", "--workers", "0", "--noise", "0")
    code, report = verify(tmp_path, text, "2,2,2", arguments)
    found = report["verification"]
    assert (code, found["verdict"], found["steps"]) == (0, "exact", STEPS), report
    assert report["expected"] == "exact"
    assert found["reason"] == "equal to the last bit"
    assert "torch 2." in found["versions"], "those of the script's Python"


def test_a_loop_whose_learning_rate_grows_with_the_gpus_is_steps_only(tmp_path: Path) -> None:
    """It reports no loss, and each number of GPUs trains other weights, also without a stop."""
    text = (EXAMPLES / "train.py").read_text()
    text = text.replace("job.metrics(loss=mean.item())", "pass")
    text = text.replace("lr=0.01", "lr=0.01 * job.devices")
    code, report = verify(tmp_path, text, "2,1,2")
    assert (code, report["verification"]["verdict"]) == (1, "steps-only"), report
    assert report["differences"] == []
    assert "another number of GPUs changes the weights by " in report["verification"]["reason"]
