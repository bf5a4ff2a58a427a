"""What the ranks of a process group tell each other; a process without a group tells itself.

Each rank calls these at the same place in its program.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist


def joined() -> bool:
    """Return whether this process has joined a process group."""
    return bool(dist.is_available() and dist.is_initialized())


def gathered(value: Any) -> list[Any]:
    """Return the value of each rank."""
    if not joined():
        return [value]
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def of_first(value: Any) -> Any:
    """Return the value of rank 0."""
    if not joined():
        return value
    values = [value]
    dist.broadcast_object_list(values, src=0)
    return values[0]
