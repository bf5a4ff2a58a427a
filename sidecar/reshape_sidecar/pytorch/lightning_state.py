"""What a checkpoint of Lightning's fits holds, and whether it fits the script that loads it.

Does: writes the state of the running fit (Lightning's own ``dump_checkpoint``, the random numbers
of each process, the position) and, beside it, what the script's hooks alter of that; keeps the end
of each finished fit, and refuses a checkpoint of another model, length of data or version with the
difference.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from reshape_sidecar import claims, durable
from reshape_sidecar.claims import CheckpointError
from reshape_sidecar.hook.settings import HookSettings
from reshape_sidecar.pytorch.data import States, seed_of, set_random_states
from reshape_sidecar.pytorch.weights import FrozenWeights, held, is_same_tensor
from reshape_sidecar.verdict.forms import PLAIN

STATE_FILE = "lightning.pt"
POSITION_FILE = "lightning.json"
OWN = "reshape"
"""Key of what Reshape adds to Lightning's checkpoint."""
NAMES_SHOWN = 3
GLOBAL_SEED = "PL_GLOBAL_SEED"
"""Variable in which ``seed_everything`` leaves its seed."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far the script is. ``fits`` fits have ended; ``running``: the state is of the next."""

    version: str
    fits: int
    running: bool
    verdict: tuple[str, str | None] | None = None
    loaders: tuple[dict[str, Any], ...] = ()
    """Of each training loader of the running fit: samples, and the batch of all processes."""
    batches: int = 0
    """Batches done in the epoch."""
    folders: dict[str, str] = dataclasses.field(default_factory=dict)
    """Into which the trainer writes (``run_folders``)."""
    first_ranks: int | None = None
    """Processes of the job's first start; None: an earlier version of Reshape wrote this."""

    def write(self, folder: Path) -> None:
        """Write this into ``folder``. Raises OSError."""
        (folder / POSITION_FILE).write_text(json.dumps(dataclasses.asdict(self)))


def end_file(fit: int) -> str:
    """Return the name of the file with the end of a fit."""
    return f"fit-{fit}.pt"


def read_position(folder: Path, version: str) -> Position:
    """Return the position of a checkpoint. Raises CheckpointError."""
    try:
        values = json.loads((folder / POSITION_FILE).read_bytes())
    except FileNotFoundError:
        raise CheckpointError(
            f"checkpoint {folder} was not written by Lightning's Trainer; give an empty checkpoint"
            " folder"
        ) from None
    if values["version"] != version:
        raise CheckpointError(
            f"checkpoint {folder} was written by Lightning {values['version']}, and this is"
            f" {version}; install {values['version']}, or give an empty checkpoint folder"
        )
    verdict = values["verdict"]
    return Position(
        **{
            **values,
            "loaders": tuple(values["loaders"]),
            "verdict": None if verdict is None else tuple(verdict),
        }
    )


def load(path: Path) -> dict[str, Any]:
    """Return the state in a file of a checkpoint."""
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=False)
    return state


def carry_over(before: Path | None, folder: Path, fit: int) -> None:
    """Take the end of a finished fit from the checkpoint ``before``, if it has that.

    Raises OSError.
    """
    if before is not None and (before / end_file(fit)).exists():
        durable.link(before / end_file(fit), folder / end_file(fit))


class Dumps:
    """Makes Lightning's checkpoints, and keeps what they were before the script's hooks.

    Scripts put averaged weights in the place of the model's, leave out what is frozen, or remove
    the optimizers from what they publish. A restart needs all of that as training had it.
    """

    def __init__(self) -> None:
        self._whole: dict[str, Any] | None = None
        self._dumps = False

    def before_hooks(self, checkpoint: dict[str, Any]) -> None:
        """Keep what ``checkpoint`` holds, if it is one of ours."""
        if self._dumps:
            self._whole = containers_copied(checkpoint)

    def dump(self, trainer: Any, frozen: FrozenWeights) -> dict[str, Any]:
        """Return the checkpoint that the script's hooks leave, and under ``OWN`` what they, or the
        model's own ``state_dict``, have altered and left out."""
        self._whole, self._dumps = None, True
        try:
            state: dict[str, Any] = trainer._checkpoint_connector.dump_checkpoint(
                weights_only=False
            )
        finally:
            self._dumps = False
        whole = self._whole or containers_copied(state)
        model = held(trainer.lightning_module)
        whole["state_dict"] |= {name: one.detach() for name, one in model.items()}
        left_out = frozen.unchanged(model.keys() - state.get("state_dict", {}).keys())
        for name in left_out:
            whole["state_dict"].pop(name, None)  # each start makes it again
        altered = {key: one for key, one in whole.items() if not is_same(one, state.get(key))}
        for one in (state, altered):
            if (loops := one.get("loops")) is not None:
                loops["fit_loop"]["state_dict"].pop("combined_loader", None)
        return {**state, OWN: {"altered": altered, "left_out": sorted(left_out)}}


def restore_whole(trainer: Any, whole: dict[str, Any]) -> None:
    """Let Lightning restore what training had, and no more what the script's hooks make of that,
    once they have seen their own. ``whole``: a checkpoint as it was before such hooks."""
    strategy, connector = trainer.strategy, trainer._checkpoint_connector
    load, restore = strategy.load_model_state_dict, connector.restore_training_state

    def load_whole(checkpoint: dict[str, Any], strict: bool = True) -> None:
        del strategy.load_model_state_dict
        checkpoint.update(containers_copied(whole))
        load(checkpoint, strict=False)  # `check_model` has told what is missing

    def restore_whole() -> None:
        del connector.restore_training_state
        connector._loaded_checkpoint.update(whole)
        restore()

    strategy.load_model_state_dict = load_whole
    connector.restore_training_state = restore_whole


def containers_copied(value: Any) -> Any:
    """Return a value whose dictionaries and lists are others, and what they hold is the same."""
    if isinstance(value, dict):
        return {key: containers_copied(one) for key, one in value.items()}
    return [containers_copied(one) for one in value] if type(value) is list else value


def is_same(one: Any, other: Any) -> bool:
    """Return whether two parts of a checkpoint hold the same numbers, tensors and objects."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return is_same_tensor(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    return one is other or (type(one) is type(other) and type(one) in PLAIN and one == other)


def of_all_ranks(value: Any, ranks: int) -> list[Any]:
    """Return the value of each process; all of them call this at the same step."""
    if ranks == 1:
        return [value]
    found: list[Any] = [None] * ranks
    dist.all_gather_object(found, value)
    return found


def random_state_of(states: list[States], rank: int) -> None:
    """Set the generators of a process; one that was not there when they were saved gets those of
    the first: what a script draws beside its steps is the same in all, if it seeds all alike."""
    set_random_states(states[rank if rank < len(states) else 0])


def check_model(
    saved: Mapping[str, Any], left_out: list[str], model: Any, folder: Path | None
) -> None:
    """Raise CheckpointError with the difference if the weights ``saved`` are of another model.

    ``left_out``: the names of those that each start makes.
    """
    own, weights = model.state_dict(), held(model)
    saved = {name: own[name] for name in left_out if name in own} | dict(saved)
    parts = []
    for what, names in (
        ("the model lacks", [name for name in saved if name not in own and name not in weights]),
        ("the checkpoint lacks", [name for name in own if name not in saved]),
        (
            "other shape",
            [f"{n} {_shapes(saved[n], own[n])}" for n in own if _differs(saved, own, n)],
        ),
    ):
        if names:
            more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
            parts.append(f"{what} {', '.join(names[:NAMES_SHOWN])}{more}")
    if parts and model.strict_loading:
        raise CheckpointError(
            f"checkpoint {folder} is of another model than {type(model).__name__}:"
            f" {'; '.join(parts)}. Give the same model, or an empty checkpoint folder"
        )


def _differs(saved: Mapping[str, Any], own: Mapping[str, Any], name: str) -> bool:
    return name in saved and getattr(saved[name], "shape", None) != getattr(
        own[name], "shape", None
    )


def _shapes(saved: Any, own: Any) -> str:
    return f"{tuple(saved.shape)} instead of {tuple(own.shape)}"


def steps_in_all(trainer: Any, done: int) -> int | None:
    """Return the job's length in steps, of which so many are ``done``; None: Lightning does not
    know it."""
    loop, batches = trainer.fit_loop, trainer.num_training_batches
    limits = [loop.max_steps] if loop.max_steps >= 0 else []
    if batches != math.inf and loop.max_epochs >= 0:
        limits.append(math.ceil(batches / trainer.accumulate_grad_batches) * loop.max_epochs)
    return done + max(0, min(limits) - trainer.global_step) if limits else None


def evaluated(trainer: Any) -> dict[str, float]:
    """Return the metrics that are known now and are none of training steps."""
    of_steps = {result.meta.name for result in trainer.fit_loop.epoch_loop._results.values()}
    return {
        name: float(value)
        for name, value in trainer.callback_metrics.items()
        if name.removesuffix("_epoch").removesuffix("_step") not in of_steps
    }


def job_seed(settings: HookSettings) -> int:
    """Return the record's seed, or that of ``seed_everything``, or one that the job drew."""
    holder = claims.read(settings.checkpoints) if settings.checkpoints is not None else None
    drawn = None if holder is None else holder.shuffle_seed
    given = settings.seed if settings.seed is not None else os.environ.get(GLOBAL_SEED)
    return seed_of("lightning", str(drawn if given is None else given))


def end_of_logs(trainer: Any) -> None:
    """End what loggers and a save of the script's own write; log nothing from now on."""
    for logger in trainer.loggers:
        logger.save()
    trainer.strategy.checkpoint_io.teardown()
    library = type(trainer).__module__.partition(".trainer")[0]
    silent = importlib.import_module(f"{library}.loggers.logger").DummyLogger
    trainer.loggers = [silent() for _ in trainer.loggers]
