"""Whether another number of GPUs changes the numbers of a ``transformers.Trainer``, and why.

Does: inspects trainer, data and model before the first step, and watches the first micro-batches:
whether they draw random numbers, and whether the loss is divided by the number of its items.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import IterableDataset

from reshape_sidecar.hook import script_code
from reshape_sidecar.hook.exactness import EXACT, STEPS_ONLY, UNKNOWN, Verdict
from reshape_sidecar.pytorch import exact_notes
from reshape_sidecar.pytorch.data import (
    STEP_DRAWS,
    changed_in_workers,
    drew_since,
    forks,
    generator_states,
    length,
)
from reshape_sidecar.pytorch.hf_batch import Batch
from reshape_sidecar.pytorch.hf_samples import EpochBatches
from reshape_sidecar.verdict.reach import Reach

REMEDY = (
    "keep it as numbers, texts, tensors or collections of them, in an attribute of a callback or of"
    " the Trainer that is there when training begins"
)
OF_LOGS = frozenset(
    {"_metrics", "_stored_metrics", "_logs", "_textual_logs", "_total_train_tokens"}
)
"""What TRL's trainers sum up for their logs."""
BOUNDARY = "_maybe_log_save_evaluate"
"""The method of Trainer at whose end the hook saves."""
OF_STATE = ("max_steps", "logging_steps", "eval_steps", "save_steps")
"""Attributes of a TrainerState that ``train`` sets anew, and that callbacks change."""
HALF = {"fp16": "float16", "bf16": "bfloat16"}
OTHER_BATCH = (
    "gradient_accumulation_steps changes while it trains, and the steps of another number of GPUs"
    " are those of the first start"
)
LOOKS = 3
"""Micro-batches of a process that are watched."""
IGNORED = -100
"""Label that losses of the library leave out."""
LOOKED_AT_ALONE = ("to", "__get__", "detach", "dim", "is_floating_point", "clone", "expand")
"""Functions of a tensor that compute nothing with its value."""


def unsupported(trainer: Any) -> str | None:
    """Return why a call of this trainer is not saved; None if it is."""
    kinds = {
        "DeepSpeed": trainer.is_deepspeed_enabled,
        "FSDP": trainer.is_fsdp_enabled or trainer.is_fsdp_xla_enabled,
        "a model sharded at load time": getattr(
            trainer, "is_distributed_loading_by_transformers", False
        ),
        "a model spread over several GPUs": trainer.is_model_parallel,
    }
    return next((kind for kind, used in kinds.items() if used), None)


def before_training(trainer: Any, loader: Any, first: Batch, now: Batch) -> Verdict:
    """Return the verdict as far as it is known before the first step."""
    types = exact_notes.weight_types([trainer.model])
    types |= {HALF.get(str(trainer.accelerator.mixed_precision), "")}
    verdict = exact_notes.verdict(owns_loss=exact_notes.owns_loss(trainer), types=types)
    if trainer.args.auto_find_batch_size:
        verdict = verdict.worse("auto_find_batch_size changes the batch", UNKNOWN)
    if splits_batches(trainer):
        verdict = verdict.worse("split_batches divides the batch of the script", UNKNOWN)
    if not isinstance(getattr(loader, "batch_sampler", None), EpochBatches):
        iterable = isinstance(getattr(loader, "dataset", None), IterableDataset)
        why = (
            "an IterableDataset is exact at an unchanged GPU count alone"
            if iterable
            else f"{type(trainer).__name__} makes its own train loader, whose position is unknown"
        )
        verdict = verdict.worse(why, STEPS_ONLY if iterable else UNKNOWN)
    if trainer.args.train_sampling_strategy == "batch_rebalance":
        verdict = verdict.worse("batch_rebalance orders the samples by the GPU count", UNKNOWN)
    trainer.model.train()  # as each step of Trainer does
    if (kept := changed_in_workers(loader)) is not None:
        verdict = verdict.worse(kept, UNKNOWN)
    for reason in exact_notes.lost_reasons([trainer.model_wrapped]):
        verdict = verdict.worse(reason, UNKNOWN)
    if _acts_after_saves(type(trainer)):
        verdict = verdict.worse(
            f"{BOUNDARY} of the script goes on after that of Trainer, in which a stop saves",
            UNKNOWN,
        )
    if _goes_back_alone(type(trainer)):
        verdict = verdict.worse(
            "training_step has a backward pass of its own, which it does not divide by the"
            " micro-batches of a step"
        )
    for reason in (
        *_data_reasons(trainer, loader, first, now),
        *exact_notes.layer_reasons([trainer.model]),
    ):
        verdict = verdict.worse(reason)
    return verdict


def _acts_after_saves(kind: type) -> bool:
    """Return whether the script does more after the step that a stop saves: a restart would not."""
    own = [one for one in script_code.methods(kind) if one.__name__ == BOUNDARY]
    trees = [script_code.tree_of(one.__code__.co_filename) for one in own]
    bodies = [
        node.body
        for tree in filter(None, trees)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == BOUNDARY
    ]
    ends = [{getattr(one, "attr", "") for one in ast.walk(body[-1])} for body in bodies]
    return bool(own) and (not ends or not all(BOUNDARY in names for names in ends))


def _goes_back_alone(kind: type) -> bool:
    """Return whether the script's ``training_step`` computes gradients beside those of Trainer's,
    without a look at how many micro-batches a step has."""
    names = {
        name
        for function in script_code.methods(kind)
        if function.__name__ == "training_step"
        for name in function.__code__.co_names
    }
    is_beside = {"backward", "training_step"} <= names
    return is_beside and not any("accumulation" in name for name in names)


def _data_reasons(trainer: Any, loader: Any, first: Batch, now: Batch) -> Iterator[str]:
    samples = length(trainer.train_dataset)
    if samples is not None and samples % first.samples:
        yield (
            f"the last step of an epoch has other samples at another GPU count: {samples} samples"
            f" are no multiple of the {first.samples} of a step"
        )
    if getattr(trainer.data_collator, "seed", None) is not None:
        yield "the data collator has a seed of its own, whose generator no checkpoint holds"
    if getattr(loader, "num_workers", 0) and not forks(loader):
        yield "the loader's workers are spawned: what they draw depends on a restart"
    draws = hasattr(trainer.data_collator, "mlm_probability")
    if draws and now.per_device != first.per_device:
        yield "the data collator draws masks by micro-batch, which has another size now"


def enter(trainer: Any, reach: Reach) -> None:
    """Give a look what a script can keep state in, beside the model."""
    optimizer, schedule = trainer.optimizer, trainer.lr_scheduler
    own = getattr(optimizer, "optimizer", optimizer)
    reach.holds(trainer.model)
    reach.root("state", trainer.state)
    for name in OF_STATE:
        reach.take(f"state.{name}", "state", trainer.state, name, getattr(trainer.state, name))
    control = [field.name for field in dataclasses.fields(trainer.control)]
    reach.root("control", trainer.control, control)
    reach.optimizer(own)
    reach.know(trainer.model_wrapped, trainer.accelerator, trainer.control, optimizer)
    reach.know(schedule, getattr(schedule, "scheduler", None), trainer.args)
    for name in ("train_dataset", "data_collator"):
        reach.data(name, trainer, name)
    reach.root(type(trainer).__name__, trainer, OF_LOGS)
    reach.take("label_smoother", "", None, None, trainer.label_smoother)
    reach.schedules([getattr(schedule, "scheduler", schedule)])
    reach.same("optimizer", [own])
    reach.same("lr_scheduler", [getattr(schedule, "scheduler", schedule)])
    reach.kinds("callbacks", trainer.callback_handler.callbacks)
    for callback in trainer.callback_handler.callbacks:
        kind = type(callback)
        of_library = kind.__module__.startswith("transformers.")
        if not of_library or hasattr(kind, "from_state"):
            reach.root(kind.__name__, callback, of_library=of_library)
    reach.functions_of(type(trainer).__name__, trainer)
    reach.model("model", trainer.model)
    reach.buffers("model", trainer.model)
    if (config := getattr(trainer.model, "config", None)) is not None:
        reach.scalars("model.config", config)
    reach.scalars("args", trainer.args)
    reach.script()


class ItemCount(torch.Tensor):  # type: ignore[misc]
    """The number of items of a step, which notes whether a loss is computed with it."""

    is_used = False

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note the use, and return what a plain tensor returns."""
        if func.__name__ not in LOOKED_AT_ALONE:
            ItemCount.is_used = True
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        if func.__name__ in LOOKED_AT_ALONE and isinstance(result, torch.Tensor):
            return result.as_subclass(ItemCount)
        return result


class MicroBatches:
    """Watches the first micro-batches of a call."""

    def __init__(self) -> None:
        self._looks = LOOKS
        self._draws = False
        """Whether a micro-batch has drawn random numbers."""
        self._widths: set[int] = set()
        """Labels of a sample, with padding, in the micro-batches so far."""
        self.ignores_items = False
        """Whether Trainer's own loss is not divided by the number of items."""
        self.is_base_loss = False
        """Whether Trainer's own ``compute_loss`` ran in this micro-batch."""

    @property
    def has_seen_nothing(self) -> bool:
        """Whether no micro-batch was watched."""
        return self._looks == LOOKS

    def step(self, trainer: Any, step: Any, count: Any, labels: Any = None) -> tuple[Any, Verdict]:
        """Run the micro-batch ``step(count)``; return its loss, and what was seen.

        labels: of a micro-batch that another number of GPUs divides; None: it stays whole.
        """
        if self._looks == 0:
            return self._step_later(step, count)
        self._looks -= 1
        is_counted = type(count) is torch.Tensor and trainer.model_accepts_loss_kwargs
        watches = is_counted and not _is_compiled(trainer)
        self.is_base_loss, ItemCount.is_used = False, False
        before = generator_states()
        loss = step(count.as_subclass(ItemCount) if watches else count)
        verdict = Verdict(EXACT)
        if drew_since(before):
            self._draws = True
            verdict = verdict.worse(STEP_DRAWS)
        divides = is_counted and (not watches or ItemCount.is_used)
        if not divides and trainer.compute_loss_func is None and self._differ(labels):
            verdict = verdict.worse(
                "a GPU divides the loss of a micro-batch by its own tokens, and more GPUs than at"
                " the first start have parts of one: accumulate more micro-batches there"
            )
        if is_counted and not watches:
            why = "a compiled model does not show whether its loss is divided by num_items_in_batch"
            verdict = verdict.worse(why, UNKNOWN)
        if watches and not ItemCount.is_used:
            self.ignores_items = self.is_base_loss
            if not self.is_base_loss and trainer.loss_is_scaled_for_ga is not False:
                verdict = verdict.worse(
                    f"{type(trainer).__name__}.compute_loss ignores num_items_in_batch, so the"
                    " loss grows with the micro-batches of a GPU: set loss_is_scaled_for_ga ="
                    " False in the class"
                )
        return loss, verdict

    def _step_later(self, step: Any, count: Any) -> tuple[Any, Verdict]:
        """Run a micro-batch; look only whether it is the first one that draws random numbers."""
        if self._draws:
            return step(count), Verdict(EXACT)
        before = generator_states()
        loss = step(count)
        self._draws = drew_since(before)
        return loss, Verdict(EXACT).worse(STEP_DRAWS) if self._draws else Verdict(EXACT)

    def _differ(self, labels: Any) -> bool:
        """Return whether samples have different numbers of labels, as far as was seen."""
        if not isinstance(labels, torch.Tensor) or labels.dim() < 2 or labels.is_floating_point():
            return False
        self._widths.add(labels.shape[1])
        return len(self._widths) > 1 or bool((labels == IGNORED).any())


def _is_compiled(trainer: Any) -> bool:
    """Return whether ``torch.compile`` traces the model, which a count that notes its use ends."""
    return trainer.args.torch_compile or any(
        type(module).__name__ == "OptimizedModule" or module._compiled_call_impl is not None
        for module in trainer.model.modules()
    )


def splits_batches(trainer: Any) -> bool:
    """Return whether ``accelerate`` divides the script's batch by the number of GPUs itself."""
    return bool(getattr(trainer.accelerator, "split_batches", False))
