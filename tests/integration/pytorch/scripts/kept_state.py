"""Trainings that keep state beside the model, as scripts of users do: one a case.

Each prints a line a step with its loss, and at the end what it has kept.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset

RANK = int(os.environ.get("RANK", "0"))
SAMPLES, FEATURES, CLASSES = 96, 8, 3


def data() -> tuple[Any, Any]:
    draws = torch.Generator().manual_seed(5)
    x = torch.randn(SAMPLES, FEATURES, generator=draws)
    return x, (x @ torch.randn(FEATURES, CLASSES, generator=draws)).argmax(1)


def network() -> Any:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, CLASSES))


def say(step: object, loss: float) -> None:
    if RANK == 0:
        print(f"step {step} loss {loss!r}", flush=True)


def kept(**values: Any) -> None:
    if RANK == 0:
        for name, value in values.items():
            print(f"kept {name} {value}", flush=True)


def size_of(weights: Any) -> float:
    return round(float(sum(weight.detach().double().abs().sum() for weight in weights)), 4)


# -- transformers.Trainer -------------------------------------------------------------------------


class Samples(Dataset):  # type: ignore[misc]
    def __init__(self) -> None:
        self.x, self.y = data()
        self.scale = 1.0

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        return {"x": self.x[index] * self.scale, "labels": self.y[index]}


class Net(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def forward(self, x: Any, labels: Any = None) -> Any:
        logits = self.net(x)
        return {"loss": functional.cross_entropy(logits, labels), "logits": logits}


def trainer(kind: Any = None, **options: Any) -> Any:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Log(TrainerCallback):  # type: ignore[misc]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if "loss" in logs:
                say(state.global_step, logs["loss"])

    arguments = TrainingArguments(
        output_dir="out",
        num_train_epochs=3,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    callbacks = [*options.pop("callbacks", []), Log()]
    return (kind or Trainer)(
        args=arguments, train_dataset=Samples(), callbacks=callbacks, **{"model": Net(), **options}
    )


def averaged_copy() -> None:
    """A callback keeps an average of the weights in a copy of the model, and how they began."""
    from transformers import TrainerCallback

    class Average(TrainerCallback):  # type: ignore[misc]
        copy: Any = None
        steps = 0

        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            self.copy = copy.deepcopy(given["model"])
            self.began = [size_of(given["model"].parameters())]

        def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            self.steps += 1
            with torch.no_grad():
                for mine, other in zip(
                    self.copy.parameters(), given["model"].parameters(), strict=True
                ):
                    mine.lerp_(other, 0.1)

    average = Average()
    trainer(callbacks=[average]).train()
    kept(average=size_of(average.copy.parameters()), steps=average.steps, began=average.began)


def harder_data() -> None:
    """A callback makes the data harder at each epoch, and freezes a layer."""
    from transformers import TrainerCallback

    class Harder(TrainerCallback):  # type: ignore[misc]
        def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            own.train_dataset.scale += 0.5
            own.model.net[0].bias.requires_grad_(own.train_dataset.scale < 2)

    own = trainer(callbacks=[Harder()])
    own.train()
    kept(scale=own.train_dataset.scale, weights=size_of(own.model.parameters()))


def counted_loss() -> None:
    """A Trainer counts its micro-batches, and the loss depends on the count."""
    from transformers import Trainer

    class Annealed(Trainer):  # type: ignore[misc]
        seen = 0

        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            self.seen += 1
            output = model(**inputs)
            return output["loss"] * min(1.0, 0.2 + self.seen / 20)

    own = trainer(Annealed)
    own.model_accepts_loss_kwargs = False
    own.train()
    kept(seen=own.seen)


def loss_with_weights() -> None:
    """The optimizer trains weights that the model does not hold."""
    from transformers import Trainer

    class Headed(Trainer):  # type: ignore[misc]
        optimizer: Any

        def create_optimizer(self, *_: Any) -> Any:
            if self.optimizer is None:
                self.optimizer = torch.optim.AdamW([*self.model.parameters(), *head.parameters()])
            return self.optimizer

        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            return functional.cross_entropy(head(model(**inputs)["logits"]), inputs["labels"])

    torch.manual_seed(4)
    head = nn.Linear(CLASSES, CLASSES)
    own = trainer(Headed)
    own.model_accepts_loss_kwargs = False
    own.train()
    kept(head=size_of(head.parameters()))


class Projection:
    """What an optimizer keeps for a matrix, as an object of the script: GaLore."""

    def __init__(self, gradient: Any) -> None:
        self.rows = torch.linalg.svd(gradient, full_matrices=False)[2][:2]


class Projected(torch.optim.SGD):  # type: ignore[misc]
    def step(self, closure: Any = None) -> Any:
        for weight in self.param_groups[0]["params"]:
            if weight.grad is not None and weight.dim() == 2:
                state = self.state[weight]
                state.setdefault("projection", Projection(weight.grad))
                weight.grad @= state["projection"].rows.T @ state["projection"].rows
        return super().step(closure)


def two_calls() -> None:
    """A Trainer trains twice, less than it was told, its blocks in turn; its optimizer keeps
    objects."""
    from transformers import TrainerCallback

    class InTurn(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            for place, part in enumerate((given["model"].net[0], given["model"].net[2])):
                part.requires_grad_(state.global_step // 3 % 2 == place)
            if state.global_step == 2:
                state.max_steps = 30
            control.turns = getattr(control, "turns", 0) + 1

        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            if not hasattr(model, "began"):
                model.began = copy.deepcopy(model.net).requires_grad_(False)

    model = Net()
    optimizer = Projected(model.parameters(), lr=0.1)
    own = trainer(model=model, optimizers=(optimizer, None), callbacks=[InTurn()])
    own.train()
    own.train()
    began = size_of(model.began.parameters())
    kept(weights=size_of(model.parameters()), turns=own.control.turns, began=began)


# -- Lightning ------------------------------------------------------------------------------------


def lightning_module(**hooks: Callable[..., Any]) -> Any:
    import lightning

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = network()
            self.scale = 1.0
            self.notes: list[int] = []

        def training_step(self, batch: Any, number: int) -> Any:
            loss = functional.cross_entropy(self.net(batch[0]) * self.scale, batch[1])
            mean = self.trainer.strategy.reduce(loss.detach().clone(), reduce_op="mean")
            say(f"{self.current_epoch}.{number}", mean.item())
            return loss

        def configure_optimizers(self) -> Any:
            trained = [weight for weight in self.parameters() if weight.requires_grad]
            return torch.optim.SGD(trained, 0.1, momentum=0.9)

    for name, hook in hooks.items():
        setattr(Module, name, hook)
    lightning.seed_everything(7)
    return Module()


def fit(module: Any, *callbacks: Any) -> None:
    import lightning

    own = lightning.Trainer(
        max_epochs=4,
        accelerator="cpu",
        logger=False,
        callbacks=[*callbacks],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    own.fit(module, DataLoader(TensorDataset(*data()), batch_size=8, shuffle=True))


def thawed_layer() -> None:
    """A callback of Lightning freezes a layer, and trains it from the second epoch on."""
    from lightning.pytorch.callbacks import BaseFinetuning

    class Thaw(BaseFinetuning):  # type: ignore[misc]
        def freeze_before_training(self, module: Any) -> None:
            self.freeze(module.net[0])

        def finetune_function(self, module: Any, epoch: int, optimizer: Any) -> None:
            if epoch == 1:
                self.unfreeze_and_add_param_group(module.net[0], optimizer, lr=1e-2)

    module = lightning_module()
    fit(module, Thaw())
    kept(weights=size_of(module.parameters()))


def scheduled_accumulation() -> None:
    """Lightning changes the accumulation, and the module an attribute, at the begin of epochs."""
    from lightning.pytorch.callbacks import GradientAccumulationScheduler

    def on_train_epoch_start(module: Any) -> None:
        module.scale *= 0.9
        module.notes.append(module.current_epoch)

    module = lightning_module(on_train_epoch_start=on_train_epoch_start)
    fit(module, GradientAccumulationScheduler({0: 1, 1: 2}))
    kept(weights=size_of(module.parameters()), scale=module.scale, notes=module.notes)


def averaged_files() -> None:
    """Files get averaged weights instead of those in training; each epoch's end draws noise."""

    def on_train_epoch_end(module: Any) -> None:
        with torch.no_grad():
            module.net[0].weight += 0.1 * torch.randn_like(module.net[0].weight)

    def on_save_checkpoint(module: Any, checkpoint: Any) -> None:
        checkpoint["state_dict"] = {
            name: torch.zeros_like(weight) for name, weight in module.state_dict().items()
        }

    module = lightning_module(
        on_train_epoch_end=on_train_epoch_end, on_save_checkpoint=on_save_checkpoint
    )
    fit(module)
    kept(weights=size_of(module.parameters()))


def two_fits() -> None:
    """A script trains two modules, one after the other."""

    def on_train_epoch_end(module: Any) -> None:
        module.notes.append(module.current_epoch)

    for number in range(2):
        module = lightning_module(on_train_epoch_end=on_train_epoch_end)
        fit(module)
        kept(**{f"weights{number}": size_of(module.parameters()), f"notes{number}": module.notes})


# -- job.batches ----------------------------------------------------------------------------------


def carried_names() -> None:
    """The body of a loop carries an average, a count, a second loader, and what it asks to keep."""
    from torch.nn.parallel import DistributedDataParallel

    from reshape_sidecar import session

    job = session.start()
    torch.distributed.init_process_group("gloo")
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(TensorDataset(*data()), batch_size=8, shuffle=True)
    shadow = {name: value.clone() for name, value in model.module.state_dict().items()}
    own, count, rest = job.keep(best=9.0), 0, iter(range(1, 1000))
    for epoch in job.epochs(3):
        for x, y in job.batches(loader, model=model, optimizer=optimizer):
            loss = functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            for name, value in model.module.state_dict().items():
                shadow[name].lerp_(value, 0.1)
            torch.distributed.all_reduce(mean := loss.detach().clone())
            mean = mean.item() / torch.distributed.get_world_size()
            own.best = min(own.best, mean)
            if sys.argv[2:] == ["counts"]:
                count += next(rest)
                optimizer.param_groups[0]["lr"] = 0.1 / count
            say(f"{epoch}.{job.step}", mean)
    kept(average=size_of(shadow.values()), best=round(own.best, 4), count=count)


def given_batches() -> None:
    """A function gets the batches of another one; momenta are by weight; a group comes later."""
    from torch.nn.parallel import DistributedDataParallel

    from reshape_sidecar import session

    job = session.start()
    torch.distributed.init_process_group("gloo")
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.module[2].parameters(), 0.1)
    loader = DataLoader(TensorDataset(*data()), batch_size=8, shuffle=True)
    momenta: dict[Any, Any] = {}

    def one_epoch(epoch: int, batches: Any) -> None:
        count = 0
        for x, y in batches:
            loss = functional.cross_entropy(model(x), y)
            model.zero_grad()
            loss.backward()
            for weight in model.parameters():
                momenta[weight] = momenta.get(weight, 0) * 0.5 + weight.grad
                weight.grad.copy_(momenta[weight])
            if sys.argv[2:] == ["counts"]:
                count += 1
                optimizer.param_groups[0]["lr"] = 0.1 / count
            optimizer.step()
            torch.distributed.all_reduce(mean := loss.detach().clone())
            say(f"{epoch}.{job.step}", mean.item() / torch.distributed.get_world_size())

    for epoch in job.epochs(3):
        if epoch == 1:
            optimizer.add_param_group({"params": model.module[0].parameters(), "lr": 0.05})
            nn.init.normal_(model.module[2].weight)
        one_epoch(epoch, job.batches(loader, model=model, optimizer=optimizer))
    kept(momenta=size_of(momenta.values()), weights=size_of(model.parameters()))


class Warm:
    """A forward hook that counts, which nothing but the hook holds."""

    calls = 0

    def __call__(self, module: Any, inputs: Any, output: Any) -> Any:
        self.calls += 1
        return output * min(1.0, 0.2 + self.calls / 30)


def hooks_and_noise() -> None:
    """A hook counts, weights keep slow gradients, an optimizer an attribute, a generator draws."""
    from torch.nn.parallel import DistributedDataParallel

    from reshape_sidecar import session

    class Counting(torch.optim.SGD):  # type: ignore[misc]
        def step(self, closure: Any = None) -> Any:
            self.made = getattr(self, "made", 0) + 1
            for group in self.param_groups:
                group["lr"] = 0.1 / (1 + self.made / 10)
            return super().step(closure)

    job = session.start()
    torch.distributed.init_process_group("gloo")
    model = DistributedDataParallel(network())
    model.module[1].register_forward_hook(Warm())
    noise = torch.Generator().manual_seed(11)
    optimizer = Counting(model.parameters(), 0.1)
    loader = DataLoader(TensorDataset(*data()), batch_size=8, shuffle=True)
    for epoch in job.epochs(3):
        for x, y in job.batches(loader, model=model, optimizer=optimizer):
            loss = functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            for weight in model.module.parameters():
                weight.slow = getattr(weight, "slow", 0) * 0.9 + weight.grad
                weight.grad += 0.1 * weight.slow
                weight.grad += 0.01 * torch.randn(weight.shape, generator=noise)
            optimizer.step()
            torch.distributed.all_reduce(mean := loss.detach().clone())
            say(f"{epoch}.{job.step}", mean.item() / torch.distributed.get_world_size())
    kept(made=optimizer.made, weights=size_of(model.parameters()))


class Sharp(torch.optim.Optimizer):  # type: ignore[misc]
    """An optimizer around another one, whose own ``step`` no loop calls: SAM."""

    param_groups: Any

    def __init__(self, weights: Any, **options: Any) -> None:
        super().__init__(weights, options)
        self.base = torch.optim.SGD(self.param_groups, **options)
        self.param_groups = self.base.param_groups

    def up(self) -> None:
        with torch.no_grad():
            for weight in self.param_groups[0]["params"]:
                self.state[weight]["before"] = weight.clone()
                weight.add_(weight.grad, alpha=0.05)
        self.zero_grad()

    def down(self) -> None:
        with torch.no_grad():
            for weight in self.param_groups[0]["params"]:
                weight.copy_(self.state[weight]["before"])
        self.base.step()
        self.zero_grad()


def wrapped_optimizer() -> None:
    """A loop steps an optimizer by its two halves, under a schedule."""
    from torch.nn.parallel import DistributedDataParallel

    from reshape_sidecar import session

    job = session.start()
    torch.distributed.init_process_group("gloo")
    model = DistributedDataParallel(network())
    optimizer = Sharp(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)
    loader = DataLoader(TensorDataset(*data()), batch_size=8, shuffle=True)
    given = {"model": model, "optimizer": optimizer, "scheduler": schedule}
    for x, y in job.batches(loader, epochs=3, **given):
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.up()
        functional.cross_entropy(model(x), y).backward()
        optimizer.down()
        schedule.step()
        torch.distributed.all_reduce(mean := loss.detach().clone())
        say(job.step, mean.item() / torch.distributed.get_world_size())
    kept(rate=round(optimizer.base.param_groups[0]["lr"], 6))


def faded_gradients() -> None:
    """A loop lets half of each gradient go on into the next step."""
    from reshape_sidecar import session

    job = session.start()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    loader = DataLoader(TensorDataset(*data()), batch_size=8, shuffle=True)
    for x, y in job.batches(loader, model=model, optimizer=optimizer, epochs=3):
        for weight in model.parameters():
            if weight.grad is not None:
                weight.grad.mul_(0.5)
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        say(job.step, loss.item())


globals()[sys.argv[1]]()
