"""Data in an order that the number of a step gives: a job goes on at any step, on any devices."""

import torch

BATCH = 64
"""Of all devices together: what is learned does not depend on their number."""
SAMPLES = 2048


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    """Points in ten dimensions and on which side of a curved surface they lie."""
    x = torch.randn(SAMPLES, 10, generator=torch.Generator().manual_seed(0))
    return x, (x.sin().sum(1, keepdim=True) > 0).float()


def share(step: int, rank: int, ranks: int) -> torch.Tensor:
    """Which samples of the batch of ``step`` are this device's; each epoch has its own order."""
    epoch, batch = divmod(step, SAMPLES // BATCH)
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch))
    return order[batch * BATCH : (batch + 1) * BATCH][rank::ranks]
