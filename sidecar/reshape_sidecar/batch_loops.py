"""The loop behind ``job.batches`` of a session: PyTorch's or TensorFlow's, by what it is given."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from reshape_sidecar.hook.settings import HookSettings
from reshape_sidecar.loop_epochs import LoopError
from reshape_sidecar.loop_session import LoopSession
from reshape_sidecar.verdict import carried

if TYPE_CHECKING:
    from reshape_sidecar.pytorch.loop import Loop as PyTorchLoop
    from reshape_sidecar.tensorflow.loop import Loop as TensorFlowLoop

NOT_OF_TENSORFLOW = (
    "a TensorFlow loop has no `scheduler` or `scaler` (give a schedule as the learning rate, and"
    " LossScaleOptimizer as the optimizer), and job.batches serves one worker: use job.step_done"
    " for several"
)
ONCE_A_STEP = frozenset({"zero_grad", "clip_grad_norm_", "clip_grad_value_", "unscale_"})
"""Calls that need all gradients of a step."""
NOT_ONCE = (
    "{} stands in the body of job.micro_batches, where the gradients are those of one micro-batch:"
    " write it outside of that loop, as optimizer.step"
)
NOT_MICRO = (
    "the record says `batch: micro`, and this loop divides its batches itself: loop over"
    " job.batches and job.micro_batches, or leave batch out of the record"
)
NOT_OF_PYTORCH = "`state` is for a TensorFlow loop; give `model`, `scheduler` or `scaler`"


class BatchLoops:
    """The loop of a session; a framework is imported only if the loop is its."""

    def __init__(self, session: LoopSession, settings: HookSettings) -> None:
        self._session, self._settings = session, settings
        self._pytorch_loop: PyTorchLoop | None = None
        self._tensorflow_loop: TensorFlowLoop | None = None

    def epochs(self, count: int | None) -> Iterator[int]:
        """Return the epochs that are left, of the framework that the script has imported."""
        return (self._tensorflow() if _only_tensorflow() else self._pytorch()).epochs(count)

    def batches(
        self,
        loader: Any,
        *,
        model: Any,
        optimizer: Any,
        scheduler: Any,
        scaler: Any,
        state: Any,
        epochs: int | None,
        frame: FrameType,
    ) -> Iterator[Any]:
        """Return the batches of ``loader``, for the loop in ``frame``.

        Raises LoaderError, LoopError, CheckpointError.
        """
        if _is_tensorflows(loader):
            from reshape_sidecar.tensorflow import loop as tensorflow_loop

            if scheduler is not None or scaler is not None or self._settings.workers > 1:
                raise LoopError(NOT_OF_TENSORFLOW)
            parts = tensorflow_loop.Parts(model, optimizer, state)
            return self._tensorflow().batches(loader, parts, epochs, frame)
        from reshape_sidecar.pytorch import loop_state

        if state is not None:
            raise LoopError(NOT_OF_PYTORCH)
        objects = loop_state.Parts(model, optimizer, scheduler, scaler)
        return self._pytorch().batches(loader, objects, epochs, frame)

    def check_own_loop(self) -> None:
        """Raise LoopError if a loop of the script's own cannot be what the record says."""
        if self._settings.micro_batches is not None:
            raise LoopError(NOT_MICRO)

    def micro_batches(self, batch: Any, frame: FrameType) -> Iterator[Any]:
        """Return the micro-batches of a batch; without ``batch: micro`` it is the only one.

        frame: of the loop over them. Raises LoopError.
        """
        if self._settings.micro_batches is None or self._pytorch_loop is None:
            return iter((batch,))
        for name in sorted(carried.called_within_a_step(frame) & ONCE_A_STEP):
            raise LoopError(NOT_ONCE.format(name))
        from reshape_sidecar.pytorch.micro_batches import MicroBatches

        return batch.each() if isinstance(batch, MicroBatches) else iter((batch,))

    def _pytorch(self) -> PyTorchLoop:
        if self._pytorch_loop is None:
            from reshape_sidecar.pytorch.loop import Loop

            settings = self._settings
            lengths = (settings.epochs, settings.steps)
            self._pytorch_loop = Loop(
                self._session, settings.seed, *lengths, micro=settings.micro_batches
            )
        return self._pytorch_loop

    def _tensorflow(self) -> TensorFlowLoop:
        if self._tensorflow_loop is None:
            from reshape_sidecar.tensorflow.loop import Loop

            # The script's own total, unless the record has one.
            self._tensorflow_loop = Loop(
                self._session, self._settings.epochs, self._session.total_steps
            )
        return self._tensorflow_loop


def _is_tensorflows(loader: Any) -> bool:
    """Return whether the loop over ``loader`` is TensorFlow's.

    An unknown object is of the only framework that the script has imported.
    """
    roots = {kind.__module__.partition(".")[0] for kind in type(loader).__mro__}
    return "tensorflow" in roots if roots & {"tensorflow", "torch"} else _only_tensorflow()


def _only_tensorflow() -> bool:
    return "tensorflow" in sys.modules and "torch" not in sys.modules
