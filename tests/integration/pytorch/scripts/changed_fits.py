"""Fits of Lightning whose callbacks and hooks change what Lightning itself keeps: one a case."""

from __future__ import annotations

import copy
import os
import sys
from typing import Any

import lightning
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


def data() -> Any:
    draws = torch.Generator().manual_seed(5)
    x = torch.randn(96, 8, generator=draws)
    return x, (x @ torch.randn(8, 3, generator=draws)).argmax(1)


def network() -> Any:
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))


def say(name: str, value: float) -> None:
    if os.environ.get("RANK", "0") == "0":
        print(f"said {name} {value!r}", flush=True)


class Module(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def training_step(self, batch: Any, number: int) -> Any:
        loss = functional.cross_entropy(self.net(batch[0]), batch[1]) + self.more(batch[0])
        mean = self.trainer.strategy.reduce(loss.detach().clone(), reduce_op="mean")
        say(f"{self.current_epoch}.{number}", mean.item())
        return loss

    def more(self, x: Any) -> Any:
        return 0.0

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.net.parameters(), 0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class Changes(lightning.Callback):  # type: ignore[misc]
    """Adds epochs at the last one's end, draws a layer anew, steps the schedule more rarely, and
    asks early for an end after 22 steps."""

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == 8:
            trainer.should_stop, trainer.fit_loop.epoch_loop.min_steps = True, 22

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        loop = trainer.fit_loop
        if loop.max_epochs == trainer.current_epoch + 1 < 4:
            loop.max_epochs += 1
        trainer.lr_scheduler_configs[0].frequency = 4
        nn.init.normal_(module.net[2].weight)


class Publishes(Module):
    """Puts averages in the place of the weights when it saves, leaves the rest out, and loads no
    more than the first layer of what it finds."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = copy.deepcopy(self.net).requires_grad_(False)
        self.backbone = network().requires_grad_(False)
        self.average = {name: one.clone() for name, one in self.net.state_dict().items()}

    def more(self, x: Any) -> Any:
        return functional.mse_loss(self.net(x), self.slow(x) + self.backbone(x))

    def on_train_batch_end(self, *_: Any) -> None:
        for slow, own in zip(self.slow.parameters(), self.net.parameters(), strict=True):
            slow.data.lerp_(own.data, 0.2)
        for name, one in self.net.state_dict().items():
            self.average[name].lerp_(one, 0.1)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["state_dict"] = {f"net.{key}": one.clone() for key, one in self.average.items()}
        checkpoint["optimizer_states"].clear()
        del checkpoint["lr_schedulers"], checkpoint["loops"]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        for name in [name for name in checkpoint["state_dict"] if "net.0" not in name]:
            checkpoint["state_dict"][name] = self.average[name.removeprefix("net.")]
        checkpoint["optimizer_states"] = []

    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        state = super().state_dict(*arguments, **options)
        return {name: one for name, one in state.items() if "backbone" not in name}


def fit(module: Any, epochs: int, *callbacks: Any) -> None:
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        callbacks=[*callbacks],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(TensorDataset(*data()), batch_size=8, shuffle=True))
    say("weights", float(sum(one.detach().abs().sum() for one in module.parameters())))
    say("rate", trainer.optimizers[0].param_groups[0]["lr"])


def changed_loops() -> None:
    fit(Module(), 2, Changes())


def altered_saves() -> None:
    fit(Publishes(), 4)


if __name__ == "__main__":
    lightning.seed_everything(7)
    {"changed_loops": changed_loops, "altered_saves": altered_saves}[sys.argv[1]]()
