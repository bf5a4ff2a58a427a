"""What a checkpoint of Lightning's fits holds, and whether it fits the script that loads it.

Does: writes the state of the running fit (Lightning's own ``dump_checkpoint``, the random numbers
of each process, the position), keeps the end of each finished fit, and refuses a checkpoint of
another model, length of data or version with the difference.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from reshape_sidecar import durable
from reshape_sidecar.claims import CheckpointError
from reshape_sidecar.pytorch.data import States, set_random_states

STATE_FILE = "lightning.pt"
POSITION_FILE = "lightning.json"
OWN = "reshape"
"""Key of what Reshape adds to Lightning's checkpoint."""
NAMES_SHOWN = 3
BASES = ("hooks", "callback")
"""Modules of Lightning whose ``on_load_checkpoint`` does nothing."""


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


def dumped(trainer: Any) -> dict[str, Any]:
    """Return Lightning's checkpoint of a trainer, with the weights that it trains.

    A hook of the script may put others there, such as averaged ones, for the files that it keeps.
    If a hook at the load takes them apart again, they stay.
    """
    state: dict[str, Any] = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
    state["loops"]["fit_loop"]["state_dict"].pop("combined_loader", None)
    hooks = [type(one).on_load_checkpoint for one in (trainer.lightning_module, *trainer.callbacks)]
    if all(hook.__module__.rpartition(".")[2] in BASES for hook in hooks):
        state["state_dict"] = trainer.strategy.lightning_module_state_dict()
    return state


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


def check_model(saved: Mapping[str, Any], model: Any, folder: Path | None) -> None:
    """Raise CheckpointError with the difference if the weights ``saved`` are of another model."""
    own = model.state_dict()
    parts = []
    for what, names in (
        ("the model lacks", [name for name in saved if name not in own]),
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
