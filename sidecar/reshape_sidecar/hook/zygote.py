"""``python [opts] PATH/hook/zygote.py``: a process with the framework imported, to be forked.

Does: loads the hook as ``run.py`` does, imports the framework, checks that it runs one thread and
has touched no device, and forks a training process at each order. An order is a socket that comes
over the socket from init; the fork reads the rest from it. Ends with
init, or if a check fails.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import types
from typing import Any

ENV_CONTROL = "RESHAPE_ZYGOTE_SOCKET"
"""As in ``contract``, which is not loaded yet."""
HOOK = "_reshape_hook.hook"
FRAMEWORK = ("numpy", "tensorflow", "keras")
PRELOADS = (f"{HOOK}.keras_patch",)
"""Modules of the hook that it loads once the framework is there."""
DEVICES = "/dev/nvidia"


class Unfit(Exception):
    """The imported framework cannot be forked; the message says why."""


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


def prepare(program: Any) -> Any:
    """Import the framework; return what the children need to know. Raises Unfit.

    ``program``: ``run.py`` as a module.
    """
    import warnings

    finders, path, filters = tuple(sys.meta_path), tuple(sys.path), tuple(warnings.filters)
    program._load_hook()
    from_hook = importlib.import_module
    process_modules = frozenset(sys.modules)
    recorder = from_hook(f"{HOOK}.import_record").ImportRecorder()
    with recorder.recording():
        child = from_hook(f"{HOOK}.fork_child")
        image = from_hook(f"{HOOK}.process_image")
        surroundings = from_hook(f"{HOOK}.import_world")
    score = image.oom_score()
    image.set_oom_score("1000")
    variables = surroundings.read_by_imports(os.environ)
    with recorder.recording():
        for name in FRAMEWORK:
            try:
                from_hook(name)
            except Exception as error:
                raise Unfit(f"import {name}: {type(error).__name__}: {error}") from None
    for name in PRELOADS:
        from_hook(name)
    brought = {name for name in sys.modules if name not in process_modules}
    packages = frozenset(name.partition(".")[0] for name in brought) - {"_reshape_hook"}
    imports = surroundings.ImportWorld(
        path if sys.flags.safe_path else path[1:],
        packages,
        variables,
        recorder.own_variables(),
        surroundings.stamps(packages),
    )
    return child.World(process_modules, path, finders, filters, score, recorder.modules, imports)


def check() -> None:
    """Raise Unfit unless a fork of this process is as good as a new one."""
    keras = sys.modules["keras"]
    if keras.backend.backend() != "tensorflow":
        raise Unfit(f"Keras uses {keras.backend.backend()}, not TensorFlow")
    module = sys.modules.get("tensorflow.python.eager.context")
    if module is None or not hasattr(module, "_context"):
        raise Unfit("this TensorFlow does not say whether its devices are initialised")
    context = module._context
    if context is not None and (context._initialized or context._physical_devices is not None):
        raise Unfit("the import of TensorFlow has initialised its devices")
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue  # the descriptor of the listing itself
        if target.startswith(DEVICES):
            raise Unfit(f"the import of the framework has opened {target}")
    _fork_once()  # OpenBLAS ends its threads then, and starts them when they are needed
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        raise Unfit(f"the import of the framework has started {threads - 1} threads")


def _fork_once() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def serve(control: Any, world: Any) -> list[str] | None:
    """Fork at each order; return the hook's arguments in a child, None once init is gone."""
    import socket

    init = os.getppid()
    while True:
        text, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not text:
            return None
        stream = socket.socket(fileno=descriptors[0])
        middle = os.fork()
        if middle == 0:
            middle = os.getpid()
            if os.fork():
                os._exit(0)
            control.close()
            fork_child = sys.modules[f"{HOOK}.fork_child"]
            arguments: list[str] = fork_child.become_cold_start(
                stream, world, _program(), init, middle
            )
            return arguments
        stream.close()
        os.waitpid(middle, 0)


def main(program: Any) -> list[str] | None:
    """Prepare and serve; return the hook's arguments in a child, None at the end."""
    number = int(os.environ[ENV_CONTROL])
    os.set_inheritable(number, False)
    try:
        world = prepare(program)
        import gc
        import json
        import socket

        check()
    except Unfit as error:
        import json
        import socket

        with socket.socket(fileno=number) as control:
            control.sendall(json.dumps({"off": str(error)}).encode() + b"\n")
        return None
    control = socket.socket(fileno=number)
    gc.collect()
    gc.freeze()
    sys.modules[f"{HOOK}.process_image"].return_free_memory()
    control.sendall(json.dumps({"ready": True}).encode() + b"\n")
    return serve(control, world)


if __name__ == "__main__":
    program, code = _load_program()
    arguments = main(program)
    if arguments is None:
        os._exit(0)
    sys.argv = arguments
    exec(code, program.new_main(arguments[0]).__dict__)
