"""Trains a small model with Lightning, as its own examples do; nothing here is about Reshape."""

from __future__ import annotations

import argparse
import math
import random
import time
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Points(Dataset):  # type: ignore[misc]
    """Points of the plane, each moved a little when it is read."""

    def __init__(self, count: int, noise: float) -> None:
        generator = torch.Generator().manual_seed(3)
        self.points = torch.randn(count, 2, generator=generator)
        self.noise = noise

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> tuple[Any, Any, int]:
        point = self.points[index]
        label = (point.prod() > 0).float()
        if self.noise:
            point = point + self.noise * random.random() * torch.rand(2)
        return point, label, index


class Classifier(pl.LightningModule):  # type: ignore[misc]
    def __init__(self, dropout: float, pause_s: float, width: int) -> None:
        super().__init__()
        self.save_hyperparameters()
        layers = [nn.Linear(2, width), nn.Tanh(), nn.Dropout(dropout), nn.Linear(width, 1)]
        self.net = nn.Sequential(*layers)
        self.pause_s = pause_s

    def forward(self, points: Any) -> Any:
        return self.net(points).squeeze(-1)

    def training_step(self, batch: Any, number: int) -> Any:
        points, labels, indices = batch
        loss = nn.functional.binary_cross_entropy_with_logits(self(points), labels)
        mean = self.all_gather(loss.detach()).mean().item()
        seen = sorted(self.all_gather(indices).flatten().tolist())
        if self.global_rank == 0:
            rate = self.optimizers().param_groups[0]["lr"]
            print(f"batch {self.current_epoch} {number} {mean!r} {rate!r} {seen}", flush=True)
        time.sleep(self.pause_s)
        self.log("train_loss", loss, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, number: int) -> None:
        points, labels, _ = batch
        loss = nn.functional.binary_cross_entropy_with_logits(self(points), labels)
        self.log("val_loss", loss, sync_dist=True, prog_bar=True)

    def on_validation_epoch_end(self) -> None:
        if self.global_rank == 0 and not self.trainer.sanity_checking:
            value = self.trainer.callback_metrics["val_loss"].item()
            print(f"validated {self.current_epoch} {value!r}", flush=True)
            time.sleep(self.pause_s)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.05)
        steps = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--min-epochs", type=int)
    parser.add_argument("--samples", type=int, default=192)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--noise", type=float, default=0.2)
    parser.add_argument("--check", type=int)
    parser.add_argument("--pause", type=float, default=0.0)
    options = parser.parse_args()
    pl.seed_everything(7)
    loader = DataLoader(
        Points(options.samples, options.noise),
        batch_size=options.batch,
        shuffle=True,
        num_workers=options.workers,
    )
    validation = DataLoader(Points(32, 0.0), batch_size=options.batch)
    trainer = pl.Trainer(
        max_epochs=options.epochs,
        min_epochs=options.min_epochs,
        val_check_interval=options.check,
        accumulate_grad_batches=options.accumulate,
        callbacks=[ModelCheckpoint(monitor="val_loss", save_top_k=2)],
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=5,
    )
    model = Classifier(options.dropout, options.pause, options.width)
    trainer.fit(model, loader, validation)
    if trainer.is_global_zero:
        norm = math.sqrt(sum(float(p.double().square().sum()) for p in model.parameters()))
        best = trainer.checkpoint_callback.best_model_score
        print(f"fitted {trainer.global_step} {norm!r} best {best.item()!r}", flush=True)


if __name__ == "__main__":
    main()
