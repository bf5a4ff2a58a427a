"""Saves and restores, as the sharded example does, an optimizer whose `train` makes empty state."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as parts

EXAMPLES, FOLDER = map(Path, sys.argv[1:])
sys.path.insert(0, str(EXAMPLES))

from train_sharded import restore, state_of  # type: ignore[import-not-found]  # noqa: E402


class Averaging(torch.optim.Optimizer):  # type: ignore[misc]
    """Keeps an average of each weight. As schedulefree's, `train` looks into the state of each."""

    def __init__(self, weights: Any) -> None:
        super().__init__(weights, {"lr": 0.1})

    def train(self) -> None:
        for group in self.param_groups:
            for weight in group["params"]:
                if "average" in self.state[weight]:
                    weight.grad = None

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for weight in group["params"]:
                state = self.state[weight]
                average = state.setdefault("average", torch.zeros_like(weight))
                average.lerp_(weight.detach(), 0.5)
                weight.data.add_(weight.grad + average, alpha=-group["lr"])


def begin() -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = Averaging(model.parameters())
    optimizer.train()
    return model, optimizer


def losses(model: Any, optimizer: Any) -> list[float]:
    found = []
    for step in range(5):
        optimizer.zero_grad()
        loss = (model(torch.full((2, 4), float(step))) - 1).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


model, optimizer = begin()
losses(model, optimizer)
parts.save(state_of(model, optimizer), checkpoint_id=FOLDER)
straight = losses(model, optimizer)
model, optimizer = begin()
restore(model, optimizer, FOLDER)
print("the same losses:", losses(model, optimizer) == straight)
