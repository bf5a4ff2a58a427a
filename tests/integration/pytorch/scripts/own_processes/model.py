"""The network that these programs train: the same on each process, before it has learned."""

import torch


def network(device: torch.device) -> torch.nn.Module:
    torch.manual_seed(5)
    layers = torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)
    return torch.nn.Sequential(*layers).to(device)
