"""Prints what the parts of the hook of Trainer say to batches, checkpoints, losses and samples."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import Trainer, TrainingArguments

from reshape_sidecar.claims import CheckpointError
from reshape_sidecar.pytorch import exact_notes, hf_samples, hf_state, hf_verdict
from reshape_sidecar.pytorch.hf_batch import Batch, BatchError
from reshape_sidecar.pytorch.hf_samples import EpochBatches, Sample


class Noise(Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.rand(1) + index


class Line(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.slope = torch.nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor, **_: Any) -> dict[str, torch.Tensor]:
        return {"loss": (self.slope * x).square().mean()}


class Named(Trainer):  # type: ignore[misc]
    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        return super().training_step(
            inputs=inputs, model=model, num_items_in_batch=num_items_in_batch
        )


class Own(Trainer):  # type: ignore[misc]
    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        loss = model(**inputs)["loss"]
        loss.backward()
        return loss.detach()


def train(kind: type[Trainer]) -> int:
    """The steps that a Trainer has made."""
    args = TrainingArguments(
        "out", max_steps=2, use_cpu=True, report_to="none", save_strategy="no", disable_tqdm=True
    )
    data = [{"x": float(number)} for number in range(32)]
    return int(kind(Line(), args, train_dataset=data).train().global_step)


def says(name: str, call: Callable[[], object]) -> None:
    try:
        call()
    except CheckpointError as error:
        print(f"{name}: {error}")


def divided(batch: Batch) -> str:
    found = []
    for ranks in (1, 2, 4):
        try:
            on = batch.on(ranks)
            found.append(f"{ranks}: {on.per_device} x {on.ranks} x {on.accumulation}")
        except BatchError:
            found.append(f"{ranks}: refused")
    return "; ".join(found)


def count(compute: Callable[[Any], object]) -> str:
    hf_verdict.ItemCount.is_used = False
    compute(torch.tensor(4).as_subclass(hf_verdict.ItemCount))
    return "used" if hf_verdict.ItemCount.is_used else "not used"


def read(order: list[list[int]]) -> dict[int, float]:
    """What is drawn for each sample of epoch 3, batches in this order."""
    loader = DataLoader(Noise(), batch_sampler=EpochBatches(order, None, seed=5))
    loader.batch_sampler.set_epoch(3)
    return {int(value): float(value) for batch in loader for value in batch}


with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    says("other checkpoint", lambda: hf_state.Saved.read(folder))
    versions = {**hf_state.versions(), "transformers": "4.0.0"}
    position = {
        "call": 0,
        "is_over": False,
        "batch": {"per_device": 1, "ranks": 1, "accumulation": 1},
        "model": "Bert",
        "samples": 1,
        "steps_per_epoch": 1,
        "versions": versions,
    }
    (folder / hf_state.POSITION_FILE).write_text(json.dumps(position))
    says("version", lambda: hf_state.Saved.read(folder))
for batch in (Batch(8, 2, 1), Batch(5, 2, 3)):
    print(f"batch of {batch.per_device} x 2 x {batch.accumulation}: {divided(batch)}")
loss = torch.tensor(2.0)
print(f"divided by the count: {count(lambda items: loss / items.to(loss.device))}")
print(f"not divided by the count: {count(lambda items: loss if items is not None else 0)}")
hf_samples.patch_fetch()
if read([[0, 1], [2, 3]]) == read([[3, 2], [1, 0]]):
    print("sample: the same in another order")
assert isinstance(Sample.of(1, 5, 3), int)
norm, blind = torch.nn.BatchNorm1d(2), torch.nn.BatchNorm1d(2, track_running_stats=False)
print(f"layers: {[*exact_notes.layer_reasons([norm])]}")
print(f"frozen layers: {[*exact_notes.layer_reasons([norm.eval()])]}")
print(f"frozen layers without averages: {len([*exact_notes.layer_reasons([blind.eval()])])}")
print(f"named: {train(Named)}")
print(f"own: {train(Own)}")
with Path("starts").open("a+") as starts:
    starts.write("x")
    starts.seek(0)
    print(f"tail of start {len(starts.read())}", flush=True)
time.sleep(100)
