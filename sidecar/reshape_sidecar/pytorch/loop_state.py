"""What a checkpoint of a loop by ``job.batches`` holds: the script's objects, and the position.

Does: saves and restores the objects that the script gave, and refuses what does not fit them, or
what several processes cannot train together.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from reshape_sidecar.claims import CheckpointError
from reshape_sidecar.loop_epochs import LoopError
from reshape_sidecar.loop_origin import POSITION_FILE, PYTORCH, position_of
from reshape_sidecar.pytorch import accelerated
from reshape_sidecar.pytorch.optimizers import refusal
from reshape_sidecar.pytorch.weights import (
    TrainedWeights,
    groups_of,
    is_parallel,
    portraits,
    set_groups,
    set_trained,
    state_of,
    trained,
    unwrapped,
)
from reshape_sidecar.verdict import forms
from reshape_sidecar.verdict.reach import Reach

STATE_FILE = "state.pt"
VERSION = "torch"
"""Field of a position; earlier versions of Reshape wrote none."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far training is. ``batch`` batches of ``epoch`` are done."""

    seed: int
    samples: int
    epoch: int = 0
    batch: int = 0


class Parts:
    """What a checkpoint of the loop holds: the objects that the script gave."""

    def __init__(self, model: Any, optimizer: Any, scheduler: Any, scaler: Any) -> None:
        self.models = _listed(model)
        given = _listed(optimizer)
        self.optimizers = [accelerated.own_optimizer(optimizer) for optimizer in given]
        self._parts = {
            "model": [unwrapped(module) for module in self.models],
            "optimizer": self.optimizers,
            "scheduler": [accelerated.own_scheduler(each) for each in _listed(scheduler)],
            "scaler": _listed(scaler) or accelerated.scalers(given),
        }

    def check(self, ranks: int) -> None:
        """Raise LoopError if ``ranks`` processes cannot train these models together."""
        for model in self.models:
            if any(type(parameter).__name__ == "DTensor" for parameter in model.parameters()):
                raise LoopError(
                    f"{type(unwrapped(model)).__name__} is sharded, and job.batches saves whole"
                    " models; write `processes: one` and save as examples/pytorch/train_sharded.py"
                    " does"
                )
        if (why := refusal(self.optimizers)) is not None:
            raise LoopError(why)
        if ranks == 1:
            return
        groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]
        alone = {id(parameter) for group in groups for parameter in group["params"]}
        parallel = [model for model in self.models if is_parallel(model)]
        alone -= {id(parameter) for model in parallel for parameter in model.parameters()}
        for model in self.models:
            trains_alone = any(id(parameter) in alone for parameter in model.parameters())
            if trains_alone or not parallel:
                raise LoopError(
                    f"{ranks} processes train, and the {type(unwrapped(model)).__name__} of each"
                    " learns alone: wrap it in torch.nn.parallel.DistributedDataParallel, or write"
                    " `processes: one`"
                )

    def has_models_of(self, other: Parts) -> bool:
        """Return whether these are the parts of the same models."""
        pairs = itertools.zip_longest(self._parts["model"], other._parts["model"])
        return all(one is another for one, another in pairs)

    def trained_weights(self) -> list[TrainedWeights]:
        """Return which weights are trained now, of each model in parallel."""
        return [TrainedWeights(unwrapped(model)) for model in self.models if is_parallel(model)]

    def weights(self) -> dict[str, Any]:
        """Return portraits of all weights, for a recording."""
        return portraits(unwrapped(model) for model in self.models)

    def save(
        self, folder: Path, position: Position, others: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """Write all parts, what the loop holds beside them, and the position into ``folder``."""
        states: dict[str, Any] = {key: [*map(state_of, one)] for key, one in self._parts.items()}
        kinds = {name: [type(one).__name__ for one in each] for name, each in self._parts.items()}
        states["kinds"] = {name: kinds[name] for name in ("optimizer", "scheduler")}
        states["trained"] = [trained(model) for model in self._parts["model"]]
        states["groups"] = [groups_of(one, self._named()) for one in self.optimizers]
        torch.save({**states, **others}, folder / STATE_FILE)
        fields = {VERSION: str(torch.__version__), **dataclasses.asdict(position)}
        (folder / POSITION_FILE).write_text(json.dumps(fields))

    def enter(self, reach: Reach) -> None:
        """Leave out what the checkpoint holds; look at what the models keep beside it."""
        for model in self._parts["model"]:
            reach.holds(model)
        for optimizer in self.optimizers:
            reach.optimizer(optimizer)
        reach.schedules(self._parts["scheduler"])
        reach.know(*self.models, *itertools.chain.from_iterable(self._parts.values()))
        for model in self._parts["model"]:
            reach.model(type(model).__name__, model)
            reach.buffers(type(model).__name__, model)

    def _named(self) -> dict[str, Any]:
        models = enumerate(self._parts["model"])
        return {
            f"{number} {name}": weight
            for number, model in models
            for name, weight in model.named_parameters()
        }

    def load(self, folder: Path) -> dict[str, Any]:
        """Restore all parts; return what else the checkpoint holds.

        Raises CheckpointError with the difference.
        """
        states = torch.load(folder / STATE_FILE, map_location="cpu", weights_only=False)
        for model, flags in zip(self._parts["model"], states.get("trained", []), strict=False):
            set_trained(model, flags)
        for optimizer, saved in zip(self.optimizers, states.get("groups", []), strict=False):
            set_groups(optimizer, saved, self._named())
        kinds = states.get("kinds", {})
        for name, parts in self._parts.items():
            saved = states.pop(name)
            given = [type(part).__name__ if name in kinds else "one" for part in parts]
            held = kinds.get(name, ["one"] * len(saved))
            if held != given:
                raise CheckpointError(
                    f"checkpoint {folder} holds as `{name}` {', '.join(held) or 'none'}, and"
                    f" job.batches got {', '.join(given) or 'none'}; give the same (what training"
                    " replaces, make by the number of the epoch), or another checkpoint folder"
                )
            for part, state in zip(parts, saved, strict=True):
                try:
                    forms.load(part, state)
                except (RuntimeError, ValueError, KeyError) as error:
                    raise CheckpointError(
                        f"checkpoint {folder} does not fit `{name}`: {error}"
                    ) from error
        others: dict[str, Any] = states
        return others


def saved_position(folder: Path | None) -> Position | None:
    """Return how far the checkpoint is. Raises CheckpointError, with the difference."""
    if folder is None:
        return None
    fields = position_of(folder, PYTORCH)
    saved, version = fields.pop(VERSION, None), str(torch.__version__)
    if saved not in (None, version):
        raise CheckpointError(
            f"checkpoint {folder} was written with torch {saved}, and this is torch {version};"
            f" install torch {saved}, or give an empty checkpoint folder"
        )
    return Position(**fields)


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
