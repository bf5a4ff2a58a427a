"""A fit of Lightning whose loss and layers couple the samples of one GPU's batch."""

from __future__ import annotations

import sys
from typing import Any

import lightning.pytorch as pl
import torch
from coupled_loop import Pairs, Towers, show
from torch.utils.data import DataLoader, IterableDataset


class Module(pl.LightningModule):  # type: ignore[misc]
    def __init__(self, case: str) -> None:
        super().__init__()
        self.case, self.seen = case, 0
        self.towers = Towers()
        self.automatic_optimization = case != "manual"

    def on_train_batch_start(self, batch: Any, number: int) -> None:
        if self.case == "changing":
            batch[0].mul_(2)

    def training_step(self, batch: Any, number: int) -> Any:
        self.seen += self.case == "counting"
        scale = 1 + 0.1 * torch.rand(()) + 0.001 * self.seen
        loss = self.towers(batch[0] * scale, batch[1])
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def on_train_batch_end(self, output: Any, batch: Any, number: int) -> None:
        if self.global_rank == 0:
            step = f"{self.current_epoch}/{number}/{self.global_step}"
            print(f"step {step} loss {output['loss'].item()!r}", flush=True)

    def configure_optimizers(self) -> Any:
        if self.case == "twice":
            return torch.optim.LBFGS(self.parameters(), max_iter=2)
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.05)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.8)
        return [optimizer], [{"scheduler": schedule, "interval": "step", "frequency": 2}]


class Endless(IterableDataset):  # type: ignore[misc]
    def __iter__(self) -> Any:
        return iter(Pairs(8))


def main(case: str) -> None:
    pl.seed_everything(7)
    trainer = pl.Trainer(
        max_epochs=3,
        limit_train_batches=7,
        accumulate_grad_batches=1 if case else 3,
        gradient_clip_val=None if case in ("manual", "twice") else 1.0,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        logger=False,
    )
    data = Endless() if case == "endless" else Pairs(113 if case == "odd" else 112)
    loader = DataLoader(data, batch_size=4, shuffle=case != "endless", num_workers=2 * (not case))
    module = Module(case)
    trainer.fit(module, loader)
    if trainer.is_global_zero:
        show(module.towers)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
