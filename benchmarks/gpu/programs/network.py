"""The network of this run: a small ResNet on generated pictures. Without PyTorch: a pause."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from device import Gpu

SIZES = {True: (64, 128), False: (4, 4)}
"""Channels and batch, on a GPU and on a stand-in's processor."""
PAUSE_S = 0.02
CLASSES = 10


class Training:
    """A model and its optimizer on a GPU; ``step`` trains once and returns the loss."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self._steps = 0
        if gpu.torch is None:
            return
        torch = gpu.torch
        width, self._batch = SIZES[gpu.is_real]
        torch.manual_seed(1)
        if not gpu.is_real:
            torch.set_num_threads(1)
        self._model = network(torch, width).to(gpu.device)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.01, momentum=0.9)
        self._loss = torch.nn.CrossEntropyLoss()
        self._x = torch.randn(self._batch, 3, 32, 32, device=gpu.device)
        self._y = torch.randint(CLASSES, (self._batch,), device=gpu.device)

    def step(self) -> float:
        """Train one step and wait for its end; the loss."""
        self._steps += 1
        if self.gpu.torch is None:
            time.sleep(PAUSE_S)
            return 1.0 / self._steps
        self._optimizer.zero_grad()
        loss = self._loss(self._model(self._x), self._y)
        loss.backward()
        self._optimizer.step()
        return float(loss.item())

    def save(self, folder: Path) -> None:
        """Write model and optimizer into ``folder``."""
        if self.gpu.torch is None:
            (folder / "state.pt").write_bytes(bytes(1 << 16))
            return
        state = {"model": self._model.state_dict(), "optimizer": self._optimizer.state_dict()}
        self.gpu.torch.save(state, folder / "state.pt")

    def load(self, folder: Path) -> None:
        """Read what ``save`` wrote, onto this GPU."""
        if self.gpu.torch is None:
            (folder / "state.pt").read_bytes()
            return
        state = self.gpu.torch.load(
            folder / "state.pt", map_location=self.gpu.device, weights_only=True
        )
        self._model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.gpu.synchronize()


def network(torch: Any, width: int) -> Any:
    """Return a ResNet of four stages with two blocks each, as ResNet-18, for 32 by 32 pixels."""
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, before: int, after: int, stride: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(before, after, 3, stride, 1, bias=False),
                nn.BatchNorm2d(after),
                nn.ReLU(),
                nn.Conv2d(after, after, 3, 1, 1, bias=False),
                nn.BatchNorm2d(after),
            )
            same = stride == 1 and before == after
            self.skip = nn.Identity() if same else nn.Conv2d(before, after, 1, stride, bias=False)

        def forward(self, x: Any) -> Any:
            return torch.relu(self.body(x) + self.skip(x))

    layers: list[Any] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    before = width
    for stage in range(4):
        after = width << stage
        layers += [Block(before, after, 1 if stage == 0 else 2), Block(after, after, 1)]
        before = after
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, CLASSES)]
    return nn.Sequential(*layers)
