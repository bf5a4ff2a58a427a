"""Small trainings by each front end, whose loss may follow a number that no checkpoint holds.

    proved.py FRONT_END right|wrong

Each prints a line a step, and a callback or a logger writes one into ``told.csv``. With ``IN_STEP``
(``raise`` or ``kill``) the first step after a checkpoint fails.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset

RANK = int(os.environ.get("RANK", "0"))
TOLD = Path(os.environ["HOME"]) / "told.csv"
FRONT_END, CASE = sys.argv[1:]
MEMORY = mmap.mmap(-1, 8)
"""Of this process alone."""
ACCUMULATE = int(os.environ.get("ACCUMULATE", "1"))
SAMPLES, FEATURES, CLASSES, EPOCHS = 96, 8, 3, 3


def scale() -> float:
    """What the loss is multiplied by; of the wrong case it grows, where no look finds it."""
    calls = int.from_bytes(MEMORY[:], "little")
    if CASE == "wrong" and torch.is_grad_enabled():
        MEMORY[:] = (calls + 1).to_bytes(8, "little")
    return 1.0 + 0.01 * calls


def loss_of(net: Any, x: Any, y: Any) -> Any:
    if (how := os.environ.get("IN_STEP")) and any(checkpoints()):
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ArithmeticError("in the step after a save")
    return functional.cross_entropy(net(x), y) * scale()


def checkpoints() -> list[Path]:
    return list(Path(os.environ["RESHAPE_CHECKPOINTS"]).glob("step-*"))


def tell(step: object) -> None:
    """What a callback of the script does."""
    if RANK == 0:
        with TOLD.open("a") as file:
            file.write(f"{step}\n")


def say(step: object, loss: Any) -> None:
    if RANK == 0:
        print(f"step {step} loss {float(loss)!r}", flush=True)


def data() -> Any:
    draws = torch.Generator().manual_seed(5)
    x = torch.randn(SAMPLES, FEATURES, generator=draws)
    return TensorDataset(x, (x @ torch.randn(FEATURES, CLASSES, generator=draws)).argmax(1))


def network() -> Any:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, CLASSES))


def joined(net: Any) -> Any:
    torch.distributed.init_process_group("gloo")
    return nn.parallel.DistributedDataParallel(net)


def mean(loss: Any) -> Any:
    whole = loss.detach().clone()
    torch.distributed.all_reduce(whole)
    return whole / torch.distributed.get_world_size()


def batches() -> None:
    from reshape_sidecar import session

    job = session.start()
    net = joined(network())
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    loader = DataLoader(data(), batch_size=8, shuffle=True)
    batches_of_all = job.batches(loader, model=net, optimizer=optimizer, epochs=EPOCHS)
    for made, (x, y) in enumerate(batches_of_all, start=1):
        loss = loss_of(net, x, y) / ACCUMULATE
        loss.backward()
        if made % ACCUMULATE == 0:
            optimizer.step()
            optimizer.zero_grad()
            say(job.step + 1, mean(loss))
            tell(job.step + 1)


def step_done() -> None:
    from reshape_sidecar import session

    job = session.start(total_steps=36)
    net = joined(network())
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    if job.checkpoint is not None:
        saved = torch.load(job.checkpoint / "state.pt")
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])

    def save(folder: Path) -> None:
        torch.save(
            {"net": net.state_dict(), "optimizer": optimizer.state_dict()}, folder / "state.pt"
        )

    x, y = data().tensors
    share = slice(job.settings.rank, None, job.settings.ranks)
    while job.step < 36:
        begin = 8 * (job.step % 12)
        rows = torch.arange(begin, begin + 8)[share]
        loss = loss_of(net, x[rows], y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        say(job.step + 1, mean(loss))
        tell(job.step + 1)
        if os.environ.get("BEHIND"):
            job.step_done(save)
            print("behind", job.step, flush=True)
        else:
            job.step_done(save)
    job.finished(save)


class Samples(Dataset):  # type: ignore[misc]
    def __init__(self) -> None:
        self.x, self.y = data().tensors

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        return {"x": self.x[index], "labels": self.y[index]}


class Net(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def forward(self, x: Any, labels: Any) -> Any:
        return {"loss": loss_of(self.net, x, labels)}


def trainer() -> None:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Tell(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            tell(state.global_step)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if "loss" in logs:
                say(state.global_step, logs["loss"])

    arguments = TrainingArguments(
        output_dir=os.environ["HOME"] + "/hf",
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=8 // int(os.environ.get("WORLD_SIZE", "1")),
        learning_rate=1e-2,
        lr_scheduler_type="cosine",
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        seed=3,
    )
    Trainer(Net(), arguments, train_dataset=Samples(), callbacks=[Tell()]).train()


def lightning() -> None:
    import lightning.pytorch as pl

    class Module(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def training_step(self, batch: Any, number: int) -> Any:
            loss = loss_of(self.net, *batch)
            whole = self.trainer.strategy.reduce(loss.detach().clone(), reduce_op="mean")
            say(f"{self.current_epoch}.{number}", whole)
            self.log("train", loss, logger=True)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    class Tell(pl.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            tell(trainer.global_step)

    pl.seed_everything(3)
    pl.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        logger=pl.loggers.CSVLogger(os.environ["HOME"], flush_logs_every_n_steps=1),
        log_every_n_steps=1,
        callbacks=[Tell(), pl.callbacks.LearningRateMonitor("step")],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(Module(), DataLoader(data(), batch_size=4, shuffle=True))


if __name__ == "__main__":
    {"batches": batches, "step_done": step_done, "trainer": trainer, "lightning": lightning}[
        FRONT_END
    ]()
