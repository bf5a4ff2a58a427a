"""The figures of one step of a PyTorch program, taken at its optimizers.

Does: notes the batch, the losses whose ``backward`` is called, gradients, rates, trained weights,
and the change of samples of the weights, on each rank, and brings the ranks' figures together. It
draws no random number, and keeps some numbers of each weight. Never: measures weights that are cut
among ranks, or the gradients of optimizers after the first unless it is told which step.

PyTorch iterates over the hooks of all optimizers at each step, so its own stay registered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.optim import optimizer as optimizers

from reshape_sidecar.hook.exactness import HALF_PRECISION
from reshape_sidecar.proof import figures
from reshape_sidecar.proof.figures import DIGEST_BITS, OptimizerFigures, StepFigures
from reshape_sidecar.proof.first_steps import Begin, FirstSteps
from reshape_sidecar.pytorch import exact_notes
from reshape_sidecar.pytorch.collectives import gathered, joined, of_first
from reshape_sidecar.pytorch.data import drew_since, generator_states
from reshape_sidecar.pytorch.exact_notes import AutocastLook, type_name
from reshape_sidecar.pytorch.optimizers import with_inner
from reshape_sidecar.verdict import loops

SAMPLES = 1024
"""Numbers of a weight that are looked at."""
SUMS = 16
"""Sums that tell the direction of the gradients."""
IGNORED_LABEL = -100
"""Label of a padded token."""
OTHERS_TRAIN = "processes train with it that have no session"


class FirstStep:
    """Measures the step that begins now; it is over at ``step_ended``, or once each optimizer of
    ``expected`` has stepped (None: any one)."""

    def __init__(
        self,
        models: Iterable[Any],
        done: Callable[[StepFigures | None], None],
        *,
        gpus: int,
        varies: bool = False,
        expected: list[Any] | None = None,
        parts: int = 1,
        draws: Callable[[], bool] | None = None,
    ) -> None:
        """``gpus``: of this process's job. ``varies``: as in ``StepFigures``. ``parts``,
        ``draws``: as for ``measures``."""
        self._models, self._done = [*map(_unwrapped, models)], done
        self._gpus, self._varies, self._parts, self._draws = gpus, varies, parts, draws
        self._expected = None if expected is None else {id(one) for one in expected}
        self._families = {
            id(one): id(owner) for owner in expected or () for one in with_inner([owner])
        }
        """The expected optimizer that steps with another one that it wraps."""
        self._autocast = AutocastLook(self._models)
        self._batch = self._samples = 0
        self._forms: set[str] = set()
        self._random: Mapping[str, Any] | None = None
        self._losses: list[Any] = []
        self._before: dict[int, list[tuple[Any, Any]]] = {}
        """The weights of each optimizer that steps now, and samples of them."""
        self._stepped: list[OptimizerFigures] = []
        self._is_half = self._is_over = False
        self._trained = 0
        _watch(self)

    def batch(self, batch: Any) -> None:
        """Take a micro-batch of this rank."""
        if self._is_over:
            return
        if self._random is None:
            self._random = generator_states()
        digest, samples, form = digest_of(batch)
        self._batch, self._samples = self._batch + digest, self._samples + samples
        self._forms.add(form)

    def step_ended(self) -> None:
        """Stand behind the step: what has stepped by now is the step."""
        if not self._is_over:
            self._finish()

    def end(self) -> None:
        """Measure no more."""
        self._is_over = True
        self._before.clear()
        self._autocast.end()

    # -- what the hooks see -----------------------------------------------------------------------

    def backward_begins(self, tensors: Any, gradients: Any) -> None:
        """Note a loss: a single number whose gradient is 1."""
        roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        given = gradients if isinstance(gradients, list | tuple) else [gradients]
        if not self._is_over and all(one is None for one in given):
            self._losses += [root.detach() for root in roots if root.numel() == 1]

    def optimizer_begins(self, optimizer: Any) -> None:
        """Note samples of the weights before the optimizer changes them."""
        if self._is_over or (self._families and id(optimizer) not in self._families):
            return
        self._before[id(optimizer)] = [
            (weight, _samples(weight).clone())
            for group in optimizer.param_groups
            for weight in group["params"]
            if weight.requires_grad
        ]

    def optimizer_ended(self, optimizer: Any) -> None:
        """Take the figures of an optimizer; of the whole step if it was the last one."""
        before = self._before.pop(id(optimizer), None)
        if self._is_over or before is None:
            return
        if any(hasattr(weight, "placements") for weight, _ in before):
            self.end()
            self._done(None)
            return
        self._stepped.append(self._figures(optimizer, before))
        self._trained += len(before)
        self._is_half = self._is_half or any(
            type_name(weight.dtype) in HALF_PRECISION for weight, _ in before
        )
        if self._expected is not None:
            self._expected.discard(self._families[id(optimizer)])
        if not self._expected:
            self._finish()

    # -- the figures ------------------------------------------------------------------------------

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _figures(self, optimizer: Any, before: list[tuple[Any, Any]]) -> OptimizerFigures:
        held = {id(weight) for model in self._models for weight in model.parameters()}
        gradients = [weight.grad for weight, _ in before]
        reached = [gradient for gradient in gradients if gradient is not None]
        return OptimizerFigures(
            update=_norm(_samples(weight) - old for weight, old in before),
            gradient=_norm(gradient for gradient in reached),
            direction=_direction(gradients),
            rates=tuple(float(group["lr"]) for group in optimizer.param_groups if "lr" in group),
            reached=len(reached),
            outside=sum(id(weight) not in held for weight, _ in before) if held else 0,
        )

    def _finish(self) -> None:
        if self._draws is not None:
            draws = self._draws()
        else:
            drew = self._random is not None and drew_since(dict(self._random))
            draws = drew or any(exact_notes.layer_reasons(self._models))
        types = self._autocast.types
        self.end()
        modules = [inner for model in self._models for inner in model.modules()]
        names = [
            name
            for model in self._models
            for name, weight in model.named_parameters()
            if weight.requires_grad
        ]
        losses = [float(loss) / self._parts for loss in self._losses]
        loss = math.fsum(losses) if losses else None
        own = StepFigures(
            gpus=self._gpus,
            samples=self._samples,
            batch=self._batch % (1 << DIGEST_BITS),
            form="".join(self._forms) if len(self._forms) == 1 else "",
            loss=loss if loss is not None and math.isfinite(loss) else None,
            optimizers=tuple(self._stepped),
            trained=tuple(sorted(names)) or (f"{self._trained} weights",),
            resting=sum(not inner.training for inner in modules),
            is_half=self._is_half or bool(HALF_PRECISION.keys() & types) or _rounds_products(),
            draws=draws,
            varies=self._varies,
        )
        ranks = gathered(own)
        stepped = all(one.optimizers for one in ranks)
        self._done(figures.of_all(ranks) if stepped else None)


def measures(
    models: Callable[[], Iterable[Any]],
    *,
    optimizers: Callable[[], list[Any]] | None = None,
    parts: int = 1,
    draws: Callable[[], bool] | None = None,
) -> Callable[[FirstSteps], Begin]:
    """Return what measures a step of a training, for its session.

    models: returns the models of which weights are named. optimizers: returns those that all step
    in a step; None: the first that steps ends it. parts: micro-batches of this process whose losses
    are each a mean. draws: returns whether random numbers of a step depend on the number of GPUs;
    None: they do if a step draws.
    """

    def begin_of(steps: FirstSteps) -> Begin:
        def begin(done: Callable[[StepFigures | None], None]) -> FirstStep:
            return FirstStep(
                models(),
                done,
                gpus=steps.gpus,
                varies=steps.varies(exact_notes.is_of_step),
                expected=None if optimizers is None else optimizers(),
                parts=parts,
                draws=draws,
            )

        return begin

    return begin_of


def measure_own_loop(steps: FirstSteps, ranks: int) -> None:
    """Measure the steps of a loop by ``step_done``, whose model is not known. Processes that the
    script starts beside the ``ranks`` of the job know nothing of a further step, and would wait in
    it for one that leaves."""

    def why_not() -> str:
        if joined() and dist.get_world_size() != ranks:
            return OTHERS_TRAIN
        return loops.why_no_step()

    steps.measured_by(measures(lambda: ()), of_first, why_not)


def digest_of(batch: Any) -> tuple[int, int, str]:
    """Return the sum of the hashes of a batch's samples, their number, and the form of one; all
    without the padding that masks and labels show."""
    leaves = [(name, tensor) for name, tensor in _leaves(batch) if tensor.dim()]
    if not leaves:
        return 0, 0, ""
    count = leaves[0][1].shape[0]
    forms: list[str] = []
    parts: list[tuple[bytes, Iterator[bytes]]] = []
    masks = [one for name, one in leaves if name.endswith("attention_mask") and one.dim() == 2]
    for name, tensor in leaves:
        if tensor.shape[0] != count:
            continue
        kept = None
        if masks and tensor.shape[:2] == masks[0].shape:
            kept = masks[0] != 0
        elif name.endswith("labels") and tensor.dim() == 2:
            kept = tensor != IGNORED_LABEL
        forms.append(f"{name}{tuple(tensor.shape[1 if kept is None else 2 :])}")
        parts.append((name.encode(), _contents(tensor.detach(), kept)))
    return figures.sum_of_hashes(count, parts), count, " ".join(forms)


def _contents(tensor: Any, kept: Any) -> Iterator[bytes]:
    """Yield the bytes of each sample; of those ``kept`` only, if that is given."""
    if kept is None:
        flat = tensor.reshape(tensor.shape[0], -1).contiguous().cpu().view(torch.uint8).numpy()
        yield from (row.tobytes() for row in flat)
        return
    for sample, mask in zip(tensor.cpu(), kept.cpu(), strict=True):
        yield sample[mask].contiguous().view(torch.uint8).numpy().tobytes()


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the tensors in a batch, each with the names that lead to it."""
    if isinstance(value, torch.Tensor):
        if value.layout is torch.strided and not value.is_complex() and not value.is_quantized:
            yield name, value
    elif isinstance(value, Mapping) or hasattr(value, "items"):
        for key, item in value.items():
            yield from _leaves(item, f"{name}.{key}")
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _leaves(item, f"{name}.{number}")


def _samples(tensor: Any) -> Any:
    flat = tensor.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // SAMPLES)]


def _norm(tensors: Iterable[Any]) -> float | None:
    """Return the norm of all tensors together; None if it is not finite, or there are none."""
    norms = [torch.linalg.vector_norm(_dense(one), dtype=torch.float32) for one in tensors]
    if not norms:
        return None
    device = norms[0].device
    squares = torch.stack([norm.to(device) for norm in norms]).double().square()
    norm = math.sqrt(float(squares.sum()))
    return norm if math.isfinite(norm) else None


def _dense(tensor: Any) -> Any:
    return tensor.coalesce().values() if tensor.layout is torch.sparse_coo else tensor


def _direction(gradients: list[Any]) -> tuple[float, ...]:
    """Return sums with fixed signs over samples of the gradients."""
    numbered = enumerate(gradients)
    there = [(number, _samples(_dense(one))) for number, one in numbered if one is not None]
    if not there:
        return ()
    device = there[0][1].device
    together = torch.cat([one.to(device, torch.float32) for _, one in there]).double().cpu()
    sums = torch.zeros(SUMS, dtype=torch.float64)
    begin = 0
    for number, samples in there:
        count = samples.numel()
        signs = _signs()[:, :count].roll(number % SUMS, 0)
        sums += signs @ together[begin : begin + count]
        begin += count
    numbers = sums.tolist()
    return tuple(numbers) if all(map(math.isfinite, numbers)) else ()


def _signs() -> Any:
    """Return fixed signs for ``SUMS`` sums; made once, by a generator of their own."""
    if not _made_signs:
        generator = torch.Generator().manual_seed(1)
        drawn = torch.randint(0, 2, (SUMS, 2 * SAMPLES), generator=generator, dtype=torch.int8)
        _made_signs.append(drawn.double() * 2 - 1)
    return _made_signs[0]


_made_signs: list[Any] = []


def _rounds_products() -> bool:
    """Return whether matrix products on a GPU are in TF32, which rounds as half precision does."""
    return bool(torch.cuda.is_available() and torch.get_float32_matmul_precision() != "highest")


def _unwrapped(model: Any) -> Any:
    """Return the model below the wrappers of DistributedDataParallel and of the compiler, which
    give its weights other names."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            inner = model.module
        if inner is None:
            return model
        model = inner


_measured: list[FirstStep] = []
"""The newest measure of this process."""


def _watch(measure: FirstStep) -> None:
    """Let ``measure`` see backward passes and optimizers from now on."""
    if _measured:
        _measured[0] = measure
        return
    _measured.append(measure)
    optimizers.register_optimizer_step_pre_hook(
        lambda optimizer, *_: _measured[0].optimizer_begins(optimizer)
    )
    optimizers.register_optimizer_step_post_hook(
        lambda optimizer, *_: _measured[0].optimizer_ended(optimizer)
    )
    original = torch.autograd.backward

    def backward(tensors: Any, grad_tensors: Any = None, *more: Any, **named: Any) -> Any:
        _measured[0].backward_begins(tensors, grad_tensors)
        return original(tensors, grad_tensors, *more, **named)

    torch.autograd.backward = backward
