"""The optimizers of a loop: when they have stepped, also where one of them wraps another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


class Steps:
    """Counts the steps of the optimizers between two boundaries."""

    def __init__(self, optimizers: list[Any]) -> None:
        families = [(optimizer, *_inside(optimizer)) for optimizer in optimizers]
        self._counts = [[0] * len(family) for family in families]
        """Steps of each optimizer and of those that it wraps, which a script may step alone."""
        self._hooks = [
            one.register_step_post_hook(self._counting(counts, number))
            for family, counts in zip(families, self._counts, strict=True)
            for number, one in enumerate(family)
        ]

    def take(self) -> int:
        """Return the steps since the last boundary, 0 while an optimizer has not stepped."""
        steps = [next(filter(None, counts), 0) for counts in self._counts]
        if not all(steps):
            return 0
        for counts in self._counts:
            counts[:] = [0] * len(counts)
        return max(steps)

    def end(self) -> None:
        """Count no more."""
        for hook in self._hooks:
            hook.remove()

    @staticmethod
    def _counting(counts: list[int], number: int) -> Callable[..., None]:
        def count(*_: object) -> None:
            counts[number] += 1

        return count


def refusal(optimizers: list[Any]) -> str | None:
    """Return why the state of one of the optimizers cannot be saved; None if all can."""
    for one in optimizers:
        if hasattr(one, "consolidate_state_dict"):
            return (
                f"{type(one).__name__} keeps a part of its state on each GPU, and job.batches saves"
                " whole optimizers: give the model's weights to the optimizer that it makes"
            )
    return None


def with_inner(optimizers: list[Any]) -> list[Any]:
    """Return the optimizers and those that they wrap."""
    return [one for optimizer in optimizers for one in (optimizer, *_inside(optimizer))]


def _inside(optimizer: Any) -> Iterator[Any]:
    """Yield the optimizers that one wraps, as SAM does."""
    for one in vars(optimizer).values():
        is_class = isinstance(one, type)
        if hasattr(one, "register_step_post_hook") and one is not optimizer and not is_class:
            yield one
