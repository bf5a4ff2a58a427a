"""A loop by `job.batches` whose loss and layers couple the samples of one GPU's batch."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

from reshape_sidecar import session


class Pairs(Dataset):  # type: ignore[misc]
    """Two views of each sample; the first is augmented when it is read."""

    def __init__(self, samples: int) -> None:
        generator = torch.Generator().manual_seed(3)
        self.first = torch.randn(samples, 6, generator=generator)
        self.second = self.first @ torch.randn(6, 6, generator=generator)

    def __len__(self) -> int:
        return len(self.first)

    def __getitem__(self, index: int) -> Any:
        return self.first[index] + 0.1 * torch.rand(6), self.second[index]


class Towers(nn.Module):  # type: ignore[misc]
    """Each sample has the others of its batch as negatives; BatchNorm couples them too."""

    center: Any

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("center", torch.zeros(6))
        self.moves = False
        """Whether the forward pass moves the center of the samples, and uses it."""
        layers = [nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 4)]
        self.one = nn.Sequential(*layers)
        self.other = nn.Linear(6, 4)

    def forward(self, first: Any, second: Any) -> Any:
        if self.moves:
            first = first * (1 + self.center)  # BatchNorm would take a sum out
            self.center.lerp_(first.detach().mean(0), 0.5)
        one = nn.functional.normalize(self.one(first))
        alike = 5 * one @ nn.functional.normalize(self.other(second)).T
        return nn.functional.cross_entropy(alike, torch.arange(len(alike)))


def show(model: nn.Module) -> None:
    """Print the norm of each tensor of the state."""
    for name, value in model.state_dict().items():
        print(f"ends {name} {value.double().norm().item()!r}", flush=True)


def clearing(job: Any, batch: Any, model: Any, optimizer: Any) -> None:
    for part in job.micro_batches(batch):
        optimizer.zero_grad()
        model(*part).backward()


def main(case: str) -> None:
    torch.manual_seed(7)
    dist.init_process_group("gloo")
    job = session.start()
    model = nn.parallel.DistributedDataParallel(Towers())
    model.module.moves = case == "moving"
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.8)
    loader = DataLoader(Pairs(110 if case == "odd" else 112), batch_size=16, shuffle=True)
    seen = [0]
    if case == "own":
        optimizer.step()
        job.step_done()
    for _ in job.epochs(3):
        for batch in job.batches(loader, model=model, optimizer=optimizer, scheduler=schedule):
            mixed, losses = torch.rand(()), []
            if case == "unopened":
                first, second = batch
            for first, second in job.micro_batches(batch):
                loss = model(first * (0.9 + 0.2 * mixed + 0.001 * seen[0]), second)
                if case == "late":
                    losses.append(loss)
                    continue
                loss.backward()
                seen[0] += case == "counting"
                if case == "stepping":
                    optimizer.step()
                if case == "broken":
                    break
            if case == "clearing":
                clearing(job, batch, model, optimizer)
            most = 1.0 + 0.1 * torch.rand(()).item()
            norm = nn.utils.clip_grad_norm_(model.parameters(), most).item()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            if dist.get_rank() == 0:
                print(f"step {job.step} loss {loss.item()!r}", flush=True)
                print(f"step {job.step} norm {norm!r}", flush=True)
    if dist.get_rank() == 0:
        show(model.module)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
