"""The check that the ranks of a start train together, at the first step of each.

Does: looks right before a rank's first step of an optimizer whether it has joined the process
group, also in a loop without a session. A rank alone would train as if the other GPUs were not
there. Never: imports PyTorch, or looks at a later step. The hook stays registered: PyTorch iterates
over the hooks of all optimizers at each step, and the script may have registered further ones.
"""

from __future__ import annotations

from types import ModuleType

from reshape_sidecar.hook.imports import ImportWatch
from reshape_sidecar.ranks.boundary import RankBoundary

OPTIMIZER_MODULE = "torch.optim.optimizer"


def watch_first_step(watch: ImportWatch, ranks: RankBoundary) -> None:
    """Raise NotJoined in the script at a first step without the other ranks."""

    def optimizer_imported(module: ModuleType) -> None:
        module.register_optimizer_step_pre_hook(lambda *_: ranks.check_joined())

    watch.after(OPTIMIZER_MODULE, optimizer_imported)
