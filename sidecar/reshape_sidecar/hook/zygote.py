"""``python [opts] PATH/hook/zygote.py [torch|ranks[:NAMES]]``: a process with imports, to fork.

Does: imports the framework, checks that it runs one thread and has touched no device, and forks a
training process at each order. An order is a socket that comes over the socket from init; the fork
reads the rest from it. A second socket makes the fork a successor. With TensorFlow it loads the
hook as ``run.py`` does, and its forks run under it; with ``torch`` they run the script alone. With
``ranks`` a fork is the parent of the ranks of a PyTorch job, and forks these, which run under the
hook. NAMES is what the script takes from libraries on top of PyTorch (``import_world.LIBRARIES``):
``transformers:Trainer,accelerate``. Ends with init, or if a check fails.
"""

import sys

FIRST = frozenset(sys.modules)
"""Modules that a script without the hook finds."""

import builtins  # noqa: E402
import os  # noqa: E402


class _FirstImports:
    """Notes which module imports which, until the hook's recorder can."""

    def __init__(self) -> None:
        self.names: dict[str, dict[str, None]] = {}
        self._import = builtins.__import__
        builtins.__import__ = self

    def __call__(self, name, module_globals=None, module_locals=None, fromlist=(), level=0):  # type: ignore[no-untyped-def]
        frame = sys._getframe(1)
        while frame.f_code.co_name != "<module>" and frame.f_back is not None:
            frame = frame.f_back  # the body that runs, not the function that it calls
        imported = self.names.setdefault(frame.f_globals.get("__name__", ""), {})
        if level:
            package = (module_globals or {})["__package__"].split(".")
            parent = package[: len(package) - level + 1]
            name_abs = ".".join([*parent, name] if name else parent)
        else:
            name_abs = name
        imported[name_abs] = None
        module = self._import(name, module_globals, module_locals, fromlist, level)
        imported.update((f"{name_abs}.{item}", None) for item in fromlist or ())
        return module

    def end(self) -> None:
        """Note no more."""
        builtins.__import__ = self._import


_first_imports = _FirstImports()

import importlib.machinery  # noqa: E402
import importlib.util  # noqa: E402
import types  # noqa: E402
from typing import Any, NamedTuple  # noqa: E402

ENV_CONTROL = "RESHAPE_ZYGOTE_SOCKET"
"""As in ``contract``, which is not loaded yet."""
HOOK = "_reshape_hook.hook"


class Unfit(Exception):
    """The imported framework cannot be forked; the message says why."""


class Framework(NamedTuple):
    """What a zygote imports."""

    module: str
    """The module with whose import by the script the other modules of the script's world are
    there."""
    imports: tuple[str, ...]
    later: tuple[str, ...] = ()
    """Modules that the framework itself imports while the script runs."""
    preloads: tuple[str, ...] = ()
    """Modules of the hook that it loads once the framework is there."""
    start: str | None = None
    """The hook's module that begins in a fork; None: the forks run without the hook."""
    child: str = f"{HOOK}.fork_child"
    """The module that makes a fork what a cold start would be."""
    names: tuple[str, ...] = ()
    """Modules of libraries on top of the framework (``transformers.trainer``), and attributes of
    these (``transformers:Trainer``), which a lazy module imports as they are read."""


TENSORFLOW = Framework(
    "tensorflow",
    ("numpy", "tensorflow", "keras"),
    preloads=(f"{HOOK}.keras_patch",),
    start="hook.start",
)
PYTORCH = Framework("torch", ("torch",), later=("torch._dynamo",))
"""The first optimizer imports ``torch._dynamo``, which takes as long as ``torch``."""
RANKS = PYTORCH._replace(start="pytorch_start", child="_reshape_hook.ranks.forks")
FRAMEWORKS = {"torch": PYTORCH, "ranks": RANKS}
"""By the first argument; without one of these it is TensorFlow."""


def framework_of(word: str) -> Framework:
    """Return the framework that the first argument names, with what the script takes on top."""
    name, _, names = word.partition(":")
    found = FRAMEWORKS.get(name, TENSORFLOW)
    if not names:
        return found
    words = tuple(names.split(","))
    return found._replace(module=words[-1].partition(":")[0].partition(".")[0], names=words)


def _program() -> str:
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "run.py")


def _load_program() -> tuple[types.ModuleType, types.CodeType]:
    """Return ``run.py`` as a module, and its code for the children."""
    path = _program()
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    program = types.ModuleType("_reshape_run")
    program.__file__ = path
    exec(code, program.__dict__)
    return program, code


def import_framework(recorder: Any, framework: Framework) -> None:
    """Import all that a zygote imports. Raises Unfit."""
    for name in (*framework.imports, *framework.later):
        try:
            if name in framework.later:
                recorder.import_later(name, framework.imports[0])
            else:
                importlib.import_module(name)
        except Exception as error:
            raise Unfit(f"import {name}: {type(error).__name__}: {error}") from None
    for name in framework.names:
        recorder.import_name(name)


def prepare(program: Any, framework: Framework) -> Any:
    """Import the framework and check it; return what the children need to know. Raises Unfit.

    ``program``: ``run.py`` as a module.
    """
    import gc  # noqa: F401 (for serve, which hides all modules)
    import warnings

    finders, path, filters = tuple(sys.meta_path), tuple(sys.path), tuple(warnings.filters)
    from_hook = importlib.import_module
    if framework.start is not None:
        program.load_hook(framework.start)
        process_modules = frozenset(sys.modules)
    else:
        program.find_hook()
        process_modules = FIRST
    recording = from_hook(f"{HOOK}.import_record")
    _first_imports.end()
    recorder = recording.ImportRecorder()
    with recorder.recording():
        child = from_hook(f"{HOOK}.fork_child")
        from_hook(framework.child)
        image = from_hook(f"{HOOK}.process_image")
        surroundings = from_hook(f"{HOOK}.import_world")
        check = from_hook(f"{HOOK}.fork_check")
    score = image.oom_score()
    image.set_oom_score("1000")
    variables = surroundings.read_by_imports(os.environ)
    if framework.names:
        variables |= surroundings.read_by_libraries(os.environ)
    with recorder.recording():
        import_framework(recorder, framework)
    lazy = recorder.empty_lazy_modules() if framework.names else frozenset()
    for name in framework.preloads:
        from_hook(name)
    if framework is TENSORFLOW:
        from_hook(f"{HOOK}.effects").note_bindings()
    brought = {name for name in sys.modules if name not in process_modules}
    packages = frozenset(name.partition(".")[0] for name in brought) - {"_reshape_hook"}
    imports = surroundings.ImportWorld(
        path if sys.flags.safe_path else path[1:],
        packages,
        variables,
        recorder.own_variables(),
        surroundings.stamps(packages),
    )
    reason = check.tensorflow() if framework is TENSORFLOW else check.pytorch()
    if reason is not None:
        raise Unfit(reason)
    absent = [name for name in sys.modules if name not in process_modules]
    absent = [name for name in absent if not name.startswith("_reshape_hook")]
    records = {**recording.records_of(_first_imports.names), **recorder.modules}
    return child.World(
        framework.module,
        framework.start is not None,
        sys.orig_argv.index(sys.argv[0]),
        path,
        finders,
        filters,
        score,
        recording.packed(absent, records),
        dict.fromkeys(absent),
        imports,
        child.cgroup.mount_points(),
        lazy,
    )


def serve(control: Any, world: Any, child: str) -> list[str] | None:
    """Say ready and fork at each order; return the arguments of a child, None once init is gone.

    The first argument is the hook's program, or the script that runs without the hook. ``child``:
    the module that makes a fork what a cold start would be.
    """
    import gc
    from socket import recv_fds, socket

    init = os.getppid()
    become_cold_start = sys.modules[child].become_cold_start
    return_free_memory = sys.modules[f"{HOOK}.process_image"].return_free_memory
    world.absent.update(sys.modules[f"{HOOK}.import_replay"].hide(list(world.absent)))
    gc.collect()
    gc.freeze()
    return_free_memory()
    control.sendall(b'{"ready": true}\n')
    while True:
        text, descriptors, _, _ = recv_fds(control, 1, 2)
        if not text:
            return None
        stream, standby = socket(fileno=descriptors[0]), descriptors[1:]
        middle = os.fork()
        if middle == 0:
            middle = os.getpid()
            if os.fork():
                os._exit(0)
            control.close()
            arguments: list[str] = become_cold_start(stream, world, init, middle, *standby)
            return arguments
        stream.close()
        for descriptor in standby:
            os.close(descriptor)
        os.waitpid(middle, 0)


def begin_without_names(control: int, environment: dict[str, str], reason: str) -> None:
    """Begin again in this process, without the libraries on top of the framework: with these it
    cannot be forked."""
    print(f"zygote: without {sys.argv[1].partition(':')[2]}: {reason}", flush=True)
    words = [w.partition(":")[0] if w == sys.argv[1] else w for w in sys.orig_argv]
    os.set_inheritable(control, True)
    os.execve(sys.executable, words, environment)


def main(program: Any, framework: Framework) -> list[str] | None:
    """Prepare and serve; return the arguments of a child, None at the end."""
    number, environment = int(os.environ[ENV_CONTROL]), dict(os.environ)
    os.set_inheritable(number, False)
    try:
        world = prepare(program, framework)
    except Unfit as error:
        if framework.names:
            begin_without_names(number, environment, str(error))
        import json
        import socket

        with socket.socket(fileno=number) as control:
            control.sendall(json.dumps({"off": str(error)}).encode() + b"\n")
        return None
    import socket

    return serve(socket.socket(fileno=number), world, framework.child)


if __name__ == "__main__":
    program, code = _load_program()
    framework = framework_of(sys.argv[1] if sys.argv[1:] else "")
    arguments = main(program, framework)
    if arguments is None:
        os._exit(0)
    if framework.start is None:
        sys.exit(program.run(arguments))
    sys.argv = arguments
    exec(code, program.new_main(arguments[0]).__dict__)
