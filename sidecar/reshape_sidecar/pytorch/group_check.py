"""The check that the ranks of a start train together, at the first step of each.

Does: looks right before a rank's first step of an optimizer whether it has joined the process
group, also in a loop without a session. A rank alone would train as if the other GPUs were not
there. Never: imports PyTorch, or looks at a later step. The hook stays registered: PyTorch iterates
over the hooks of all optimizers at each step, and the script may have registered further ones.
"""

from __future__ import annotations

import sys
from types import ModuleType

from reshape_sidecar.batch_loops import NOT_MICRO
from reshape_sidecar.hook.imports import ImportWatch
from reshape_sidecar.loop_epochs import LoopError
from reshape_sidecar.ranks.boundary import RankBoundary

FRONT_ENDS = (".pytorch.micro_batches", ".pytorch.hf_call")
"""Modules without which nothing keeps micro-batches."""
OPTIMIZER_MODULE = "torch.optim.optimizer"


def watch_first_step(watch: ImportWatch, ranks: RankBoundary, *, is_micro: bool) -> None:
    """Raise NotJoined in the script at a first step without the other ranks.

    is_micro: the record has ``batch: micro``; raise LoopError at a step that knows nothing of it.
    """

    def check(*_: object) -> None:
        ranks.check_joined()
        if is_micro and not any(name.endswith(FRONT_ENDS) for name in sys.modules):
            raise LoopError(NOT_MICRO)

    def optimizer_imported(module: ModuleType) -> None:
        module.register_optimizer_step_pre_hook(check)

    watch.after(OPTIMIZER_MODULE, optimizer_imported)
