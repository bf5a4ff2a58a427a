"""What a checkpoint of a ``transformers.Trainer`` holds, and how it is restored.

Does: writes model, optimizer, schedule, scaler, the trainer's state and sums, the callbacks of the
script, and of each rank its random state; refuses a checkpoint that does not fit, with the
difference. Never: writes into the trainer's ``output_dir``.

The files have the names that Trainer itself reads on ``resume_from_checkpoint``, so its own code
restores optimizer, schedule and scaler.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from reshape_sidecar import durable
from reshape_sidecar.claims import CheckpointError
from reshape_sidecar.hook import script_code
from reshape_sidecar.pytorch.collectives import gathered, joined
from reshape_sidecar.pytorch.data import random_states, set_random_states
from reshape_sidecar.pytorch.hf_batch import Batch
from reshape_sidecar.pytorch.hf_samples import EpochBatches
from reshape_sidecar.pytorch.weights import groups_of, set_groups, set_trained, state_of, trained
from reshape_sidecar.verdict.watch import Watch

POSITION_FILE = "trainer.json"
MODEL_FILE = "model.pt"
RANKS_FILE = "ranks.pt"
SUMS_FILE = "sums.pt"
OPTIMIZER_FILE = "optimizer.pt"
"""The name that Trainer gives it."""
STATE_FILE = "trainer_state.json"
"""The name that Trainer reads."""
LIBRARIES = ("transformers", "accelerate", "torch")
REMEDY = "give that again, or begin with an empty checkpoint folder"
SUMS = (
    "_total_loss_scalar",
    "_globalstep_last_logged",
    "_initial_global_step",
    "_initial_num_input_tokens_seen",
)
"""Attributes of a Trainer that it does not save itself, and that its logs depend on."""


def versions() -> dict[str, str]:
    """Return the versions of the libraries whose state a checkpoint holds."""
    return {name: importlib.metadata.version(name) for name in LIBRARIES}


@dataclass(frozen=True, slots=True)
class Position:
    """How far the ``train`` calls of a script are."""

    call: int
    """Number of the newest call, from 0."""
    is_over: bool
    """Whether that call has ended."""
    batch: Batch
    """Its batch, as divided at the job's first start."""
    model: str
    samples: int | None
    """Length of its data; None: it has none."""
    steps_per_epoch: int
    epoch: int = 0
    step: int = 0
    """Steps done in ``epoch``."""
    versions: dict[str, str] = field(default_factory=versions)
    verdict: tuple[str, str | None] | None = None
    ignores_items: bool = False
    """Whether the model's loss is not divided by the number of items of a step."""
    folders: dict[str, str] = field(default_factory=dict)
    """Into which the trainer writes (``run_folders``)."""

    def check(self, model: str, samples: int | None) -> None:
        """Raise CheckpointError if a call with these cannot go on from here."""
        for name, known, given in (
            ("a model", self.model, model),
            ("a train_dataset of length", self.samples, samples),
        ):
            if known != given:
                raise CheckpointError(
                    f"the checkpoint is of {name} {known}, and the script has {given}; {REMEDY}"
                )


@dataclass(frozen=True, slots=True)
class RankState:
    """What differs between the ranks."""

    random: dict[str, Any]
    random_of_epoch: dict[str, Any] | None
    """Random state with which the epoch's order was drawn."""
    loss: float
    """Sum of the losses since the last log."""
    flops: float
    script: tuple[dict[str, Any], ...] = ()
    """Of the script's own state, what differs between the ranks."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that was found."""

    folder: Path
    position: Position
    late: list[str] = field(default_factory=list)
    """Names of weights that the model did not have yet when it was loaded."""

    @classmethod
    def read(cls, folder: Path) -> Saved:
        """Raises CheckpointError."""
        try:
            fields = json.loads((folder / POSITION_FILE).read_bytes())
        except FileNotFoundError:
            raise CheckpointError(
                f"checkpoint {folder} was not written under a transformers.Trainer; give an empty"
                " checkpoint folder"
            ) from None
        position = Position(**{**fields, "batch": Batch(**fields["batch"])})
        for name, version in versions().items():
            if position.versions.get(name) != version:
                raise CheckpointError(
                    f"checkpoint {folder} was written with {name} {position.versions.get(name)},"
                    f" and this is {name} {version}; {REMEDY}"
                )
        return cls(folder, position)

    def load_model(self, model: Any) -> None:
        """Load the weights; those of parts that callbacks add as training begins follow then.

        Raises CheckpointError with the difference.
        """
        weights = torch.load(self.folder / MODEL_FILE, map_location="cpu")
        there = of_model(weights, model)
        self.late[:] = weights.keys() - there.keys()
        load_model(model, there, self.folder)

    def of_ranks(self) -> list[RankState]:
        """Return the states of the ranks that were saved, from rank 0 on."""
        found = torch.load(self.folder / RANKS_FILE, map_location="cpu", weights_only=False)
        return [RankState(*fields) for fields in found]

    def restore_sums(self, trainer: Any, rank: int, ranks: int) -> None:
        """Set what the trainer has summed up since its last log."""
        sums = _sums(self.folder)
        for name in SUMS:
            setattr(trainer, name, sums[name])
        states = self.of_ranks()
        if len(states) == ranks:
            loss, flops = states[rank].loss, states[rank].flops
        else:
            loss = sum(state.loss for state in states) / len(states)
            flops = sum(state.flops for state in states) if rank == 0 else 0.0
        trainer._tr_loss = torch.tensor(loss, device=trainer.args.device)
        trainer.current_flos = flops

    def restore_script(self, trainer: Any, script: Watch, rank: int, ranks: int) -> None:
        """Set what the script keeps beside the model: attributes, globals, objects with a state."""
        if self.late:
            weights = torch.load(self.folder / MODEL_FILE, map_location="cpu")
            load_model(trainer.model, weights, self.folder)
        sums = _sums(self.folder)
        for key, callback in _callbacks(trainer):  # of a checkpoint before version 0.2
            for name, value in sums.get("callbacks", {}).get(key, {}).items():
                setattr(callback, name, value)
        set_trained(trainer.model, sums.get("trained", {}))
        states = self.of_ranks()
        same_gpus = len(states) == ranks
        script.restore(sums.get("script", []), same_gpus=same_gpus)
        script.restore(list(states[rank].script) if same_gpus else [])

    def restore_trained(self, trainer: Any) -> None:
        """Set which weights are trained, and give the optimizer the groups that it got meanwhile.

        Call it when the optimizer is made, and before the model is wrapped for several GPUs.
        """
        sums = _sums(self.folder)
        _allow_own_classes(self.folder / OPTIMIZER_FILE)
        named = dict(trainer.model.named_parameters())
        flags = dict(sums.get("trained", {}))
        if trainer.args.ddp_find_unused_parameters is not False:
            # what another start has trained before is trained again: averaged over the ranks too
            flags = {
                name: flags.get(name, False) | one.requires_grad for name, one in named.items()
            }
        set_trained(trainer.model, flags)
        set_groups(trainer.optimizer, sums.get("groups", []), named)

    def restore_samplers(self, batches: EpochBatches, *, in_epoch: bool) -> None:
        """Let the samplers draw the order as they drew it, and go on as they were after it."""
        known = _sums(self.folder).get("samplers")
        if known is not None:
            batches.samplers.resume(known, in_epoch=in_epoch)

    def restore_random(self, rank: int, *, of_epoch: bool = False) -> None:
        """Set the random state of ``rank``; a rank that was not there gets that of rank 0."""
        states = self.of_ranks()
        state = states[rank if rank < len(states) else 0]
        wanted = state.random_of_epoch if of_epoch else state.random
        if wanted is not None:
            set_random_states(wanted)


def _allow_own_classes(file: Path) -> None:
    """Let Trainer load the objects of the script's classes that the optimizer's state holds."""
    for name in torch.serialization.get_unsafe_globals_in_checkpoint(file):
        module, _, attribute = name.rpartition(".")
        kind = getattr(sys.modules.get(module), attribute, None)
        if isinstance(kind, type) and script_code.of_script(kind):
            torch.serialization.add_safe_globals([kind])


@functools.lru_cache(maxsize=1)
def _sums(folder: Path) -> dict[str, Any]:
    sums: dict[str, Any] = torch.load(folder / SUMS_FILE, map_location="cpu", weights_only=False)
    return sums


def release() -> None:
    """Free what was read of a checkpoint: it may hold copies of the model."""
    _sums.cache_clear()


def of_model(weights: dict[str, Any], model: Any) -> dict[str, Any]:
    """Return those of ``weights`` that a model has, if it has no others: callbacks add parts."""
    own = model.state_dict().keys()
    return {name: weights[name] for name in own} if own <= weights.keys() else weights


def load_model(model: Any, weights: dict[str, Any], folder: Path) -> None:
    """Load ``weights`` into ``model``. Raises CheckpointError with the difference."""
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise CheckpointError(
            f"checkpoint {folder} does not fit the model: {error}; {REMEDY}"
        ) from error


def rank_state(
    trainer: Any, random_of_epoch: dict[str, Any] | None, script: list[dict[str, Any]]
) -> RankState:
    """Return the state of this rank now."""
    loss = float(trainer._tr_loss.item())
    flops = float(trainer.current_flos)
    return RankState(random_states(), random_of_epoch, loss, flops, tuple(script))


def gather(state: RankState) -> list[RankState]:
    """Return the states of all ranks; each of them calls it at the same step."""
    return [RankState(*fields) for fields in gathered(_fields(state))]


def mean(loss: Any, device: Any) -> float:
    """Return the mean of the losses of all ranks; each of them calls it at the same step."""
    total = torch.as_tensor(loss, dtype=torch.float32, device=device).clone()
    if not joined():
        return float(total)
    dist.all_reduce(total)
    return float(total) / int(dist.get_world_size())


def agree(is_saved: bool) -> bool:
    """Return ``is_saved`` of rank 0, on every rank, once all of them have called it."""
    return bool(gathered(is_saved)[0])


def write(
    folder: Path,
    trainer: Any,
    position: Position,
    ranks: list[RankState],
    script: list[dict[str, Any]],
    samplers: dict[str, Any] | None,
) -> None:
    """Write the state of a call at ``position``; called by rank 0."""
    torch.save(state_of(trainer.model), folder / MODEL_FILE)
    trainer._save_optimizer_and_scheduler(str(folder))
    trainer._save_scaler(str(folder))
    torch.save([_fields(state) for state in ranks], folder / RANKS_FILE)
    sums: dict[str, Any] = {name: getattr(trainer, name) for name in SUMS}
    sums |= {"script": script, "samplers": samplers}
    named = dict(trainer.model.named_parameters())
    sums |= {"trained": trained(trainer.model), "groups": groups_of(trainer.optimizer, named)}
    torch.save(sums, folder / SUMS_FILE)
    trainer.state.save_to_json(str(folder / STATE_FILE))
    (folder / POSITION_FILE).write_text(json.dumps(dataclasses.asdict(position)))


def link(source: Path, target: Path, names: Iterable[str]) -> None:
    """Give ``target`` the files of ``source`` with these names, without a copy."""
    for name in names:
        durable.link(source / name, target / name)


def _fields(state: RankState) -> tuple[Any, ...]:
    return (state.random, state.random_of_epoch, state.loss, state.flops, state.script)


def _callbacks(trainer: Any) -> Iterator[tuple[str, Any]]:
    """Yield the callbacks that the script brings, and those of Trainer with a state to export.

    The others go on by themselves. The key is the class and its number among those of that class.
    """
    exportable = sys.modules["transformers.trainer_callback"].ExportableState
    seen: Counter[str] = Counter()
    for callback in trainer.callback_handler.callbacks:
        kind = type(callback)
        own = not kind.__module__.startswith("transformers.") or isinstance(callback, exportable)
        name = f"{kind.__module__}.{kind.__qualname__}"
        seen[name] += 1
        if own:
            yield f"{name} {seen[name]}", callback
