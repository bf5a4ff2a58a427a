"""The measures with which training begins: the same ones at each start, or given back, or named.

Does: follows values that nothing changes while a process trains, and that are others at a restart
all the same: what a callback reads off the model or the optimizer as training begins, and what
follows from the number of GPUs. Whole numbers, texts and flags stay out: the count of the ranks, a
device, a path rightly belong to a start.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from reshape_sidecar.verdict import forms
from reshape_sidecar.verdict.leaves import Kind
from reshape_sidecar.verdict.reach import Reach

ROUNDING = 1e-3
"""Another number of GPUs sums in another order, so a measure is the same up to so much of it."""
ENTRY = "BEGIN"
"""Kind of the entry of a checkpoint that holds the first start's measures."""


class Beginning:
    """What the values were before the first step of this process, and of the first one."""

    def __init__(self) -> None:
        self._arrived: dict[str, Any] | None = None
        """Marks before the callbacks of training's begin; None: there are no such callbacks."""
        self.made: frozenset[str] = frozenset()
        """Paths of what these callbacks made: of the first start, so a checkpoint holds it."""
        self._first: dict[str, tuple[float, float]] = {}
        """Sum and absolute sum of each measure at the first start's begin, as far as is known."""
        self._own: dict[str, tuple[float, float]] = {}
        """The same of this process."""

    def arrive(self, marks: dict[str, Any]) -> None:
        """Note what is there before the callbacks of training's begin."""
        self._arrived = marks

    def begin(self, now: Reach, marks: dict[str, Any]) -> None:
        """Note what is there after them, before anything is restored."""
        sums = {
            path: forms.sums(leaf.value)
            for path, leaf in now.leaves.items()
            if leaf.kind is Kind.DATA and path not in now.saved
        }
        self._own = self._first = {path: both for path, both in sums.items() if both is not None}
        if self._arrived is not None:
            before = self._arrived
            self.made = frozenset(path for path in self._own if before.get(path) != marks[path])

    @property
    def measures(self) -> Iterable[str]:
        """Paths of the measures with which this process begins."""
        return self._own

    def entry(self) -> dict[str, Any] | None:
        """Return what a checkpoint holds; None if the script has no measure."""
        if not self._first:
            return None
        return {
            "path": "",
            "owner": "",
            "key": None,
            "kind": ENTRY,
            "value": self._first,
            "process": {},
            "of_gpu": False,
        }

    def resume(
        self, first: dict[str, tuple[float, float]], restored: Iterable[str]
    ) -> Iterator[str]:
        """Yield the paths of what is another value than at the first start's begin.

        ``restored``: paths of what the checkpoint gives back.
        """
        self._first = first
        known = frozenset(restored)
        for path in first.keys() & self._own.keys() - known:
            if not all(map(_is_same, first[path], self._own[path])):
                yield path


def _is_same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=ROUNDING, abs_tol=1e-9) or str(one) == str(other)
