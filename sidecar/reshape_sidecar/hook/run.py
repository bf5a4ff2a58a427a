"""Starts a user's script under Reshape: ``python [opts] .../hook/run.py script.py args...``.

Does: prepares ``sys.argv``, ``sys.path`` and ``__main__`` as Python itself would, loads the hook
(standard library only) by its file path, and runs the script, or a module with ``-m``. Without a
RESHAPE_* variable it runs the script without the hook.

The hook has the package name ``_reshape_hook``: a script may have its own package
``reshape_sidecar``, because the hook's modules resolve that name to themselves alone.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Mapping, Sequence
from importlib.machinery import SourceFileLoader
from typing import Any, NoReturn

PACKAGE = "reshape_sidecar"
ALIAS = "_reshape_hook"
RANK_PAGE = "RESHAPE_RANK_PAGE"
"""Set in one of several processes of a PyTorch job (``contract.ENV_RANK_PAGE``)."""
START, START_OF_RANK = "hook.start", "pytorch_start"
"""Modules that install the hook in a process."""
EXIT_INTERRUPTED = 130
"""What Python ends with after Ctrl-C."""
USAGE = "usage: python run.py [-m module | script] [argument ...]"


class _HookFinder:
    """Finds the hook's modules by file path, under the alias.

    As the last finder, it also finds the package itself for the session API, unless the user has a
    package of that name.
    """

    def __init__(self, root: str) -> None:
        self._root = root

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name == PACKAGE:
            return importlib.util.spec_from_file_location(
                name, os.path.join(self._root, "__init__.py")
            )
        if name != ALIAS and not name.startswith(ALIAS + "."):
            return None
        base = os.path.join(self._root, *name.split(".")[1:])
        package = os.path.join(base, "__init__.py")
        is_package = os.path.isfile(package)
        location = package if is_package else base + ".py"
        spec = importlib.util.spec_from_file_location(
            name, location, loader=_HookLoader(name, location)
        )
        if is_package and spec is not None:
            # Empty: with a path, Python's own finder would load the modules below it.
            spec.submodule_search_locations = []
        return spec


class _HookLoader(SourceFileLoader):
    """Executes a module of the hook; in it, the package's name resolves to the alias."""

    def exec_module(self, module: types.ModuleType) -> None:
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import}
        super().exec_module(module)


def _import(
    name: str,
    module_globals: Mapping[str, object] | None = None,
    module_locals: Mapping[str, object] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> types.ModuleType:
    if level == 0 and (name == PACKAGE or name.startswith(PACKAGE + ".")):
        name = ALIAS + name[len(PACKAGE) :]
    return builtins.__import__(name, module_globals, module_locals, fromlist or (), level)


def load_hook(name: str) -> types.ModuleType:
    """Return the hook's module ``name``, with the hook's modules importable under the alias."""
    find_hook()
    return importlib.import_module(f"{ALIAS}.{name}")


def find_hook() -> None:
    """Make the hook's modules importable under the alias."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.meta_path.append(_HookFinder(root))


def _run_main(arguments: list[str]) -> None:
    if arguments[0] == "-m":
        import runpy

        sys.argv = arguments[1:]
        if not sys.flags.safe_path:
            sys.path[0] = os.getcwd()
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    script = arguments[0]
    sys.argv = list(arguments)
    if os.path.isdir(script) or script.endswith((".pyz", ".zip")):
        import runpy

        sys.path.pop(0)
        runpy.run_path(script, run_name="__main__")
        return
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(script))
    try:
        with open(script, "rb") as file:
            source = file.read()
    except OSError as error:
        _fail(f"{sys.executable}: can't open file {os.path.abspath(script)!r}: {error}")
    script = os.path.abspath(script)
    main = new_main(script)
    exec(compile(source, script, "exec", dont_inherit=True), main.__dict__)


def new_main(path: str) -> types.ModuleType:
    """Return a new module ``__main__``, as Python makes it for the file ``path``."""
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __file__=path,
        __builtins__=builtins,
        __loader__=SourceFileLoader("__main__", path),
        __cached__=None,
        __annotations__={},
    )
    sys.modules["__main__"] = main
    return main


def _fail(message: str) -> NoReturn:
    print(message, file=sys.stderr)
    raise SystemExit(2)


def _show(error: BaseException) -> None:
    """Print ``error`` as Python would, without the frames of the hook at the top."""
    own = os.path.dirname(os.path.abspath(__file__))
    trace = error.__traceback__
    while trace is not None and (
        trace.tb_frame.f_code.co_filename.startswith(own)
        or trace.tb_frame.f_code.co_filename.startswith("<frozen runpy")
    ):
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def main() -> int:
    """Run the script, under the hook if Reshape started it; return its exit code."""
    arguments = sys.argv[1:]
    if not arguments or arguments == ["-m"]:
        _fail(USAGE)
    hook = None
    if any(name.startswith("RESHAPE_") for name in os.environ):
        hook = load_hook(START_OF_RANK if RANK_PAGE in os.environ else START).start()
    return run(arguments, hook)


def run(arguments: list[str], hook: Any = None) -> int:
    """Run the script; return its exit code.

    ``hook``: learns how the script ends; None: it runs as without Reshape.
    """
    try:
        _run_main(arguments)
    except SystemExit as end:
        if hook is not None:
            hook.exit_code = _exit_code(end.code)
            if end.code in (None, 0):
                hook.script_ended()
            else:
                hook.failed(end)
        raise
    except KeyboardInterrupt:
        if hook is not None:
            hook.exit_code = EXIT_INTERRUPTED
        raise
    except BaseException as error:
        _show(error)
        if hook is not None:
            hook.exit_code = 1
            hook.failed(error)
        return 1
    if hook is not None:
        hook.script_ended()
    return 0


def _exit_code(code: object) -> int:
    """The process's exit code for the argument of ``sys.exit``."""
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1


if __name__ == "__main__":
    sys.exit(main())
