"""Lightning scripts at whose corners a stop could wait for ever: one of them, by its name."""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities import CombinedLoader
from lightning_fit import Classifier, Points
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.utils.data import DataLoader, IterableDataset

warnings.filterwarnings("ignore")


class Zero(Classifier):
    """Its optimizer is split between the processes, and all of them save it together."""

    def configure_optimizers(self) -> Any:
        if self.trainer.world_size == 1:
            return torch.optim.Adam(self.parameters(), lr=0.05)
        return ZeroRedundancyOptimizer(self.parameters(), torch.optim.Adam, lr=0.05)


class Gathers(Classifier):
    """All processes have a part in each save."""

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["ranks"] = self.all_gather(torch.tensor([self.global_rank])).flatten().tolist()


class Tests(Classifier):
    def test_step(self, batch: Any, number: int) -> None:
        points, labels, _ = batch
        error = (self(points) - labels).square().mean()
        self.log("error", error)


class Improves(Classifier):
    """Each epoch it is right a quarter more often, as rank 0 sees it."""

    def on_validation_epoch_end(self) -> None:
        self.log("val_accuracy", 0.25 * (self.current_epoch + 1) / (self.global_rank + 1))


class Endless(IterableDataset):  # type: ignore[misc]
    def __iter__(self) -> Any:
        return iter(Points(64, 0.0))


class Killed(Classifier):
    """Its first start after the one that was stopped is killed at step 9."""

    def on_train_batch_end(self, *_: Any) -> None:
        if self.trainer.global_step == 9 and not Path("killed").exists():
            Path("killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)


class Manual(Classifier):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.automatic_optimization = False

    def training_step(self, batch: Any, number: int) -> None:
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(super().training_step(batch, number))
        optimizer.step()


class Pair(Classifier):
    """Trains on a batch of the longer of two loaders."""

    def training_step(self, batch: Any, number: int) -> Any:
        return super().training_step(batch["one"], number)


class BatchNorm(Classifier):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.net.insert(1, torch.nn.BatchNorm1d(8))


def loader(samples: int = 64, **options: Any) -> Any:
    return DataLoader(Points(samples, 0.0), batch_size=8, shuffle=True, **options)


def trainer(**options: Any) -> Any:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    options = {"max_epochs": 4, "enable_checkpointing": False, **quiet, **options}
    return pl.Trainer(accelerator="cpu", **options)


def model(kind: Any = Classifier, **options: Any) -> Any:
    values = {"dropout": 0.0, "pause_s": 0.01, "width": 8, **options}
    return kind(values["dropout"], values["pause_s"], values["width"])


def fit(kind: Any = Classifier, **options: Any) -> Any:
    made = trainer(**options)
    made.fit(model(kind), loader())
    return made


def two_fits() -> None:
    first = fit(max_epochs=2)
    if first.is_global_zero:
        alone = trainer(devices=1)
        found = alone.test(model(Tests), loader(), verbose=False)
        print(f"tested {found[0]['error'] > 0} after {first.global_step}", flush=True)
    second = model(width=4)
    last = trainer(max_epochs=2)
    last.fit(second, loader())
    weights = sum(float(weight.detach().sum()) for weight in second.parameters())
    print(f"second {last.global_step} {weights!r}", flush=True)


def same_loader() -> None:
    """Two fits of one loader, which Lightning leaves as it is; a stop can come in each."""
    data = loader(num_workers=1)
    for _ in range(2):
        made = trainer(max_epochs=1, use_distributed_sampler=False)
        made.fit(model(), data)
        print(f"fit of {made.global_step} steps", flush=True)


def tail() -> None:
    fit(max_epochs=1)
    print("fitted", flush=True)
    if int(trainer().global_rank) == 0:
        signal.sigtimedwait((), 60.0)


def other_version() -> None:
    pl.__version__ = "9.9"
    fit()


def handles() -> None:
    signal.signal(signal.SIGTERM, lambda *_: None)
    fit()


CASES: dict[str, Callable[[], object]] = {
    "other_version": other_version,
    "zero": lambda: fit(Zero),
    "gathers": lambda: fit(Gathers),
    "min_epochs": lambda: fit(min_epochs=3, max_epochs=4, max_time="00:00:00:00"),
    "two_fits": two_fits,
    "same_loader": same_loader,
    "alone": lambda: fit(devices=1),
    "tail": tail,
    "other_model": lambda: trainer().fit(model(width=5), loader()),
    "other_data": lambda: trainer().fit(model(), loader(samples=72)),
    "spawn": lambda: fit(strategy="ddp_spawn", devices=2),
    "handles": handles,
    "improves": lambda: trainer().fit(model(Improves), loader(), loader()),
    "manual": lambda: fit(Manual),
    "batchnorm": lambda: fit(BatchNorm),
    "dropout": lambda: trainer().fit(model(dropout=0.5), loader()),
    "iterable": lambda: trainer(limit_train_batches=4).fit(
        model(), DataLoader(Endless(), batch_size=8)
    ),
    "cycles": lambda: trainer().fit(
        model(Pair), CombinedLoader({"one": loader(), "other": loader(16)}, "max_size_cycle")
    ),
    "by_clock": lambda: fit(default_root_dir=f"run-{time.time_ns()}", logger=CSVLogger("logs")),
    "fixed_version": lambda: fit(
        Killed,
        logger=CSVLogger(".", "run", "fixed", flush_logs_every_n_steps=1),
        log_every_n_steps=1,
    ),
    "rest": lambda: trainer().fit(model(), loader(samples=63)),
}

if __name__ == "__main__":
    pl.seed_everything(7)
    CASES[sys.argv[1]]()
    print("the script ends", flush=True)
