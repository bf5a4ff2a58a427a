"""The weights of PyTorch models: as ``reshape verify`` compares them, and which are trained."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import torch

from reshape_sidecar.hook.recording import evenly, weight_portrait
from reshape_sidecar.verdict.forms import is_strided
from reshape_sidecar.verdict.marks import Marker

Group = tuple[list[str], dict[str, Any]]
"""The names of the weights in a group of an optimizer, and its options."""
CARRIED = "gradients of a step are left to the next one, and no checkpoint holds them"
GRADIENT_STEPS = 3
"""Steps of a process in which Reshape looks for them."""


def portraits(models: Iterable[Any]) -> dict[str, dict[str, Any]]:
    """Return digest, norm and some numbers of each tensor in the states of ``models``, by name."""
    found: dict[str, dict[str, Any]] = {}
    for number, model in enumerate(models):
        for name, value in model.state_dict().items():
            if isinstance(value, torch.Tensor):
                found[f"{number}.{name}" if number else name] = _portrait(value)
    return found


class TrainedWeights:
    """Which weights of a model are trained: at the begin of a process, and now."""

    def __init__(self, model: Any) -> None:
        self._model, self.first = model, trained(model)

    def reason(self, ranks: int) -> str | None:
        """Return why ``ranks`` processes differ, if some weights are trained since the begin."""
        if ranks == 1:
            return None
        later = [name for name, trains in trained(self._model).items() if trains]
        later = [name for name in later if not self.first.get(name, True)]
        if not later:
            return None
        return (
            f"{later[0]} is trained since a later step, and DistributedDataParallel averages the"
            " gradients of the weights that were trained when it was made"
        )


class FrozenWeights:
    """Tensors in the state of a model that no optimizer trains, and whether training changes them
    all the same."""

    def __init__(self, model: Any, changed: Iterable[str] = ()) -> None:
        """``changed``: names of those that a process before has changed."""
        self._model, self._changed = model, frozenset(changed)
        self._first = self._marks(held(model))

    def unchanged(self, names: Collection[str]) -> set[str]:
        """Return those of ``names`` that are what they were at the begin."""
        asked = {name: one for name, one in held(self._model).items() if name in names}
        marks = self._marks(asked) if asked else {}
        same = {name for name, mark in marks.items() if self._first.get(name) == mark}
        return same - self._changed

    @staticmethod
    def _marks(tensors: dict[str, Any]) -> dict[str, Any]:
        marker = Marker(deep=False)
        return {name: marker.mark(one) for name, one in tensors.items() if not one.requires_grad}


def held(model: Any) -> dict[str, Any]:
    """Return by name the tensors of a model that belong into its state, whatever that says."""
    found = {
        name: one
        for name, one in model.named_parameters(remove_duplicate=False)
        if not torch.nn.parameter.is_lazy(one)
    }
    for prefix, part in model.named_modules(remove_duplicate=False):
        for name, buffer in part.named_buffers(recurse=False):
            is_saved = name not in part._non_persistent_buffers_set
            if is_saved and not torch.nn.parameter.is_lazy(buffer):
                found[f"{prefix}.{name}" if prefix else name] = buffer
    return found


def state_of(part: Any) -> Any:
    """Return the state of a model, or of another part of training; a model that shows others, such
    as averages, in the place of its weights has its own there."""
    state = part.state_dict()
    own = held(part) if isinstance(part, torch.nn.Module) else {}
    shown = {name: state[name] for name in own.keys() & state.keys()}
    if all(is_same_tensor(one, own[name]) for name, one in shown.items()):
        return state
    return {**state, **{name: own[name].detach() for name in shown}}


def is_same_tensor(one: Any, other: Any) -> bool:
    """Return whether two tensors have the same numbers, in the same place or not."""
    if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
        return False
    if one is other or one.device.type == "meta":
        return True
    if not is_strided(one) or not is_strided(other):
        return False
    in_place = one.data_ptr() == other.data_ptr() != 0 and one.stride() == other.stride()
    return bool(in_place or torch.equal(one, other))


class GradientLook:
    """Looks in the first steps of a process whether gradients are left from the step before."""

    def __init__(self, models: Iterable[Any]) -> None:
        self._steps = GRADIENT_STEPS
        self._reached: set[int] = set()
        """Numbers of the weights that the running step has reached."""
        self._found = False
        weights = [
            weight
            for model in models
            if not is_compiled(model)
            for weight in model.parameters()
            if weight.requires_grad
        ]
        self._before: dict[int, bool] = {}
        """Whether a weight has a gradient, as its newest backward pass reaches it."""
        self._hooks = [
            hook
            for number, weight in enumerate(weights)
            for hook in (
                weight.register_hook(self._looking(number, weight)),
                weight.register_post_accumulate_grad_hook(self._accumulating(number)),
            )
        ]

    def step_ended(self) -> bool:
        """Return whether a weight had a gradient before the first backward pass of the step."""
        found, self._found = self._found, False
        self._reached.clear()
        self._steps -= 1
        if self._steps == 0:
            for hook in self._hooks:
                hook.remove()
            self._hooks.clear()
        return found

    def _looking(self, number: int, weight: Any) -> Callable[[Any], None]:
        def look(_: Any) -> None:
            if number not in self._reached:
                self._before[number] = _is_left(weight.grad)

        return look

    def _accumulating(self, number: int) -> Callable[[Any], None]:
        """Return what counts a pass that adds to the gradient: ``autograd.grad`` does not."""

        def accumulated(_: Any) -> None:
            if number not in self._reached:
                self._reached.add(number)
                self._found |= self._before.get(number, False)

        return accumulated


def trained(model: Any) -> dict[str, bool]:
    """Return of each weight whether it is trained, by name."""
    return {name: parameter.requires_grad for name, parameter in model.named_parameters()}


def set_trained(model: Any, flags: dict[str, bool]) -> None:
    """Set which weights are trained."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(flags.get(name, parameter.requires_grad))


def groups_of(optimizer: Any, named: Mapping[str, Any]) -> list[Group]:
    """Return of each group of an optimizer the names of its weights, and its options.

    ``named``: the weights of the models; another one has an empty name.
    """
    names = {id(weight): name for name, weight in named.items()}
    return [
        (
            [names.get(id(one), "") for one in group["params"]],
            {key: value for key, value in group.items() if key != "params"},
        )
        for group in optimizer.param_groups
    ]


def set_groups(optimizer: Any, saved: list[Group], named: Mapping[str, Any]) -> None:
    """Give an optimizer the weights in the groups that ``groups_of`` returned: training may have
    added groups, and moved weights between them."""
    known = {id(weight) for weight in named.values()}
    for number, (names, options) in enumerate(saved):
        if not all(name in named for name in names):
            continue
        weights = [named[name] for name in names]
        if number >= len(optimizer.param_groups):
            optimizer.add_param_group({"params": weights, **options})
        elif known.issuperset(map(id, optimizer.param_groups[number]["params"])):
            optimizer.param_groups[number]["params"][:] = weights


def is_compiled(model: Any) -> bool:
    """Return whether ``torch.compile`` has a part of a model: a hook would compile it again."""
    return any(hasattr(part, "_orig_mod") for part in model.modules())


def is_parallel(model: Any) -> bool:
    """Return whether a model is in DistributedDataParallel."""
    parallel = torch.nn.parallel.DistributedDataParallel
    return isinstance(getattr(model, "_orig_mod", model), parallel)  # under torch.compile


def unwrapped(model: Any) -> Any:
    """Return the script's module, without DistributedDataParallel and torch.compile."""
    while True:
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            model = model.module
        elif (compiled := getattr(model, "_orig_mod", None)) is not None:
            model = compiled
        else:
            return model


def _is_left(gradient: Any) -> bool:
    if type(gradient) is not torch.Tensor:  # none, or in parts on several GPUs
        return False
    numbers = gradient.coalesce().values() if gradient.is_sparse else gradient
    return bool(numbers.count_nonzero())


def _portrait(tensor: torch.Tensor) -> dict[str, Any]:
    flat = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    flat = flat.detach().reshape(-1)
    data = flat.cpu().contiguous().view(torch.uint8).numpy().tobytes()
    norm, numbers = float(flat.double().norm()), flat[evenly(len(flat))].double().tolist()
    return weight_portrait(data, norm, numbers)
