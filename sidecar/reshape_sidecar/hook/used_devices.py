"""How many of its devices a process with a `fit` uses, as far as that can be seen.

Does: looks at the strategy, the variables, the traced step and the memory of the GPUs, several
times in each `fit`; the most that was ever seen counts. Never: counts where something may use
devices unseen: eager steps, a strategy that no `fit` has used, other processes.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from reshape_sidecar.hook.exactness import step_graphs

FIRST_LOOK_S, LOOK_EVERY_S, LOOKS_MAX = 5.0, 15.0, 8
"""A `fit` is looked at so long after its first step, again after each such time, and so often."""
MEMORY_BYTES_MIN = 2**20
"""A GPU of which TensorFlow has used less was not computed on."""
_NUMBER = re.compile(r"device:(\w+):(\d+)", re.IGNORECASE)


class UsedDevices:
    """What was seen in all `fit` calls of this process, which has ``devices``."""

    def __init__(self, devices: int) -> None:
        self._devices = devices
        self._most = 0
        self._is_known = True
        self._model: Any = None
        self._looks = 0
        self._next_s = 0.0

    def fit_steps(self, model: Any, now_s: float) -> int | None:
        """Note that ``model`` trains, and return how many devices were used so far; None: that is
        not known. To be called at each report (``now_s`` is monotonic)."""
        if self._devices < 2:
            return None
        if model is not self._model:
            self._model, self._looks, self._next_s = model, 0, now_s + FIRST_LOOK_S
            self._most = max(self._most, int(model.distribute_strategy.num_replicas_in_sync))
        if self._is_known and self._looks < LOOKS_MAX and now_s >= self._next_s:
            self._looks, self._next_s = self._looks + 1, now_s + LOOK_EVERY_S
            if self._most < self._devices:
                self._look(model)
        seen = self._most if self._is_known and self._looks else None
        return None if seen is None else min(seen, self._devices)

    def _look(self, model: Any) -> None:
        try:
            found = count(model)
        except Exception:
            found = None
        self._is_known = found is not None
        self._most = max(self._most, found or 0)


def count(model: Any) -> int | None:
    """Return how many devices the training of ``model`` uses now; None: that cannot be seen."""
    tensorflow = sys.modules["tensorflow"]
    replicas = int(model.distribute_strategy.num_replicas_in_sync)
    graphs = list(step_graphs(model))
    if not graphs or _has_children() or _has_other_strategy(tensorflow, replicas):
        return None
    gpus = tensorflow.config.list_logical_devices("GPU")
    kind = "GPU" if gpus else "CPU"
    named = {0}
    for place in (*_places_of(graphs), *(variable.value.device for variable in model.variables)):
        found = _NUMBER.search(place or "")
        if found is not None and found[1].upper() == kind:
            named.add(int(found[2]))
    for number in range(len(gpus)):
        info = tensorflow.config.experimental.get_memory_info(f"GPU:{number}")
        if info["peak"] >= MEMORY_BYTES_MIN:
            named.add(number)
    return max(replicas, len(named))


def _places_of(graphs: Iterable[Any]) -> Iterator[str]:
    """Yield the devices that the operations of graphs, and of the functions in them, name."""
    for graph in graphs:
        definition = graph.as_graph_def(add_shapes=False)
        for node in definition.node:
            yield node.device
        for function in definition.library.function:
            for node in function.node_def:
                yield node.device


def _has_other_strategy(tensorflow: Any, replicas: int) -> bool:
    """Whether the script has a strategy over more devices than that of the `fit`. Looking at the
    types alone runs no code of the objects."""
    kind = tensorflow.distribute.Strategy
    return any(
        int(each.num_replicas_in_sync) > replicas
        for each in gc.get_objects()
        if issubclass(type(each), kind)
    )


def _has_children() -> bool:
    """Whether this process has started others, which see its devices too. Raises OSError where the
    kernel does not say."""
    tasks = Path("/proc/self/task")
    children = (tasks / str(os.getpid()) / "children").read_text()
    for task in os.listdir(tasks):
        with contextlib.suppress(OSError):  # the thread has ended, and left its children to another
            children += (tasks / task / "children").read_text()
    return bool(children.strip())
