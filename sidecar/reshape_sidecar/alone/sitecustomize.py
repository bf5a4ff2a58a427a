"""Waits for the import of a library with a trainer; Python imports this module before a script.

Does: imports the ``sitecustomize`` that this one hides, as Python would have done. Once a script
imports such a library, ``reshape_sidecar.alone.notice`` notices what it does. Never: imports
anything before that, or lets an error of its own reach the script.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:  # without the module typing, which costs each start some milliseconds
    from importlib.machinery import ModuleSpec
    from typing import Any

NAME = "sitecustomize"
LIBRARIES = (
    "transformers.trainer",
    "accelerate.accelerator",
    "lightning.pytorch.trainer.trainer",
    "pytorch_lightning.trainer.trainer",
)


class Watch:
    """A finder that lets the others find a library, and wraps its loader."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of a library's module with its loader wrapped; None of any other."""
        if name not in LIBRARIES:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            loader, execute = spec.loader, spec.loader.exec_module

            def exec_module(module: Any) -> None:
                del loader.exec_module
                execute(module)
                try:
                    from reshape_sidecar.alone import notice

                    notice.patch(module)
                except Exception as error:
                    print(f"reshape: {name} is not watched: {error!r}", file=sys.stderr)

            loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def import_hidden() -> None:
    """Import the next module of this name on the path, in the place of this one."""
    own = os.path.dirname(os.path.realpath(__file__))
    rest = [path for path in sys.path if os.path.realpath(path) != own]
    spec = PathFinder.find_spec(NAME, rest)
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        module = sys.modules[NAME] = module_from_spec(spec)
        spec.loader.exec_module(module)


sys.meta_path.insert(0, Watch)
import_hidden()
