"""A trainer that the script's text does not show is noticed where one process has several GPUs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from reshape_sidecar import contract
from reshape_sidecar.agent import environment, library
from reshape_sidecar.wire import Mode, Saves
from tests.support import coordinator_double, sidecar_bed
from tests.support.hook_bed import clean_environment
from tests.support.pytorch_bed import PYTHON
from tests.support.zygote_bed import PATIENCE_S

pytestmark = [pytest.mark.pytorch, pytest.mark.timeout(600)]

TRAINER = """
import importlib, time, torch
library = importlib.import_module("transformers")
model = torch.nn.Linear(2, 1)
model.forward = lambda x, labels=None: {"loss": (model.weight * x).sum()}
args = library.TrainingArguments(output_dir="out", max_steps=2, use_cpu=True, report_to="none")
data = [{"x": torch.ones(2), "labels": 0}] * 32
library.Trainer(model=model, args=args, train_dataset=data).train()
print("trained", flush=True)
time.sleep(600)
"""
LIGHTNING = """
import lightning, torch
class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
    def training_step(self, batch, number):
        return self.layer(batch).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
trainer = lightning.Trainer(max_steps=2, accelerator="cpu", logger=False, devices=1,
                            enable_checkpointing=False, enable_progress_bar=False)
trainer.fit(Net(), torch.utils.data.DataLoader(torch.ones(8, 2)))
print("trained")
"""
ACCELERATE = "from accelerate import Accelerator\nAccelerator(cpu=True)\nprint('trained')\n"
LESS = "trains on 1 of 2 GPUs and is not saved: write processes: per-gpu"


def test_its_agent_reports_what_the_record_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_double, "PATIENCE_S", PATIENCE_S)
    with sidecar_bed.bed(tmp_path) as bed:
        bed.initialised(TRAINER, framework="pytorch", command=(str(PYTHON), "train.py"))
        bed.coordinator.want(Mode.RUN, *sidecar_bed.DEVICES[:2])
        report = bed.coordinator.until("a notice", lambda o: o.progress.trajectory is not None)
        assert (report.progress.trajectory, report.progress.trajectory_reason) == ("unknown", LESS)
        report = bed.coordinator.until("what it can", lambda o: o.saves is not None)
        assert report.saves is Saves.NEVER
        assert report.progress.trajectory_reason == LESS


def test_trainers_of_other_libraries_are_noticed_too(tmp_path: Path) -> None:
    made = library.install(tmp_path)
    assert made is not None
    env = clean_environment() | {
        "PYTHONPATH": f"{made}:{made / environment.ALONE}",
        contract.ENV_DEVICES: "gpu-0,gpu-1",
    }
    words = [[str(PYTHON), "-c", text] for text in (LIGHTNING, ACCELERATE)]
    runs = [
        subprocess.Popen(
            each, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
        )
        for each in words
    ]
    for run, kind in zip(runs, ("Trainer", "Accelerator"), strict=True):
        printed, errors = run.communicate(timeout=PATIENCE_S)
        assert "trained" in printed, errors
        assert f"reshape: this {kind} {LESS}" in errors
