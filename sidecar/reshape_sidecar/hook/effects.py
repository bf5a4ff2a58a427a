"""Holds a successor before its first effect outside itself, such as a file that it writes.

Does: listens to Python's audit events, and wraps the functions of TensorFlow and h5py that write
without one. Allowed are bytecode caches, and new temporary files, which are removed if the process
is dropped. Not noticed: a library of C that writes by itself.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Callable
from types import ModuleType
from typing import Any

from reshape_sidecar.hook import bindings
from reshape_sidecar.hook.imports import ImportWatch
from reshape_sidecar.hook.standby import Standby

WRITING = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
OF_PATHS = frozenset(
    {
        "os.chflags",
        "os.chmod",
        "os.chown",
        "os.link",
        "os.mkdir",
        "os.remove",
        "os.removexattr",
        "os.rename",
        "os.rmdir",
        "os.setxattr",
        "os.symlink",
        "os.truncate",
        "os.utime",
    }
)
OTHERS = frozenset(
    {
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.kill",
        "os.killpg",
        "os.posix_spawn",
        "os.spawn",
        "os.system",
        "pty.spawn",
        "socket.bind",
        "socket.connect",
        "socket.sendmsg",
        "socket.sendto",
        "sqlite3.connect",
        "subprocess.Popen",
    }
)
HELD = OF_PATHS | OTHERS | {"open"}
PROBES = frozenset({"ldconfig", "lscpu", "uname"})
"""Programs that libraries ask about the machine when they are imported."""
FILE_MODULE = "tensorflow.python.lib.io.file_io"
FILE_FUNCTIONS = (
    "atomic_write_string_to_file",
    "copy",
    "copy_v2",
    "create_dir",
    "create_dir_v2",
    "delete_file",
    "delete_file_v2",
    "delete_recursively",
    "delete_recursively_v2",
    "recursive_create_dir",
    "recursive_create_dir_v2",
    "rename",
    "rename_v2",
    "write_string_to_file",
)
WRITERS = {
    "tensorflow.python.ops.summary_ops_v2": ("create_file_writer", "create_file_writer_v2"),
    "tensorflow.python.ops.gen_io_ops": (
        *("save", "save_v2", "write_file", "merge_v2_checkpoints"),
        *("Save", "SaveV2", "WriteFile", "MergeV2Checkpoints"),  # those of ``tf.raw_ops``
    ),
    "multiprocessing.util": ("spawnv_passfds",),
}
"""Functions that write or start a process without an audit event, by module."""


_bindings: dict[tuple[str, str], list[bindings.Binding]] = {}
"""Where the zygote's import has bound the functions that a successor replaces."""


def note_bindings() -> None:
    """Note where the functions are bound that a successor, a fork of this process, replaces."""
    functions = {
        (module, name): function
        for module, names in {**WRITERS, FILE_MODULE: FILE_FUNCTIONS}.items()
        for name in names
        if (function := getattr(sys.modules.get(module), name, None)) is not None
    }
    found = bindings.find(functions.values())
    _bindings.update({key: found[id(function)] for key, function in functions.items()})


def watch(standby: Standby, imports: ImportWatch) -> None:
    """Hold this process before its effects until its release."""
    tempfile.gettempdir()  # it tries the folder once: under a lock, which an event must not take
    sys.addaudithook(_listener(standby))
    imports.after(FILE_MODULE, functools.partial(_wrap_files, standby))
    for name, functions in WRITERS.items():
        imports.after(name, functools.partial(_wrap, standby, functions))
    imports.after("h5py._hl.files", functools.partial(_wrap_h5py, standby))
    imports.after("tensorflow.python.data.ops.dataset_ops", functools.partial(_wrap_data, standby))
    imports.after("tensorflow.python.lib.io.tf_record", functools.partial(_wrap_records, standby))


def _listener(standby: Standby) -> Callable[[str, tuple[Any, ...]], None]:
    waiting = [standby]  # emptied at the release, so that each later event costs little

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if not waiting or event not in HELD:
            return
        if not standby.waits:
            waiting.clear()
        elif reason := _effect(event, arguments, standby.temporary):
            standby.hold(reason)

    return hear


def _effect(event: str, arguments: tuple[Any, ...], temporary: list[str]) -> str:
    """Return what an event does outside this process; empty if it does nothing there."""
    if event == "socket.bind" and _is_any_port(arguments[1]):
        return ""
    if event == "subprocess.Popen":
        name = os.path.basename(os.fsdecode(arguments[0]))
        return "" if name in PROBES else f"it starts {name}"
    if event == "os.kill" and arguments[0] == os.getpid():
        return ""
    if event in OTHERS:
        return event
    path = _path(arguments[0]) if arguments else ""
    if event != "open":
        if os.path.lexists(path) == (event == "os.mkdir"):
            return ""  # the call fails, as libraries expect that try it
        if event == "os.mkdir" and _is_new_temporary(path):
            temporary.append(path)
            return ""
        return "" if _is_own(path, temporary) else f"{event} {path}"
    if not _writes(arguments) or path == os.devnull or not path or _is_bytecode(path):
        return ""
    flags = arguments[2] if isinstance(arguments[2], int) else 0
    if flags & os.O_TMPFILE == os.O_TMPFILE:
        return ""  # a file without a name, which goes with this process
    if isinstance(arguments[1], str) and os.path.isdir(path):
        return ""  # a temporary file: the call that makes it is an event of its own
    if flags & os.O_EXCL and _is_new_temporary(path):
        temporary.append(path)
        return ""
    return "" if _is_own(path, temporary) else f"it opens {path} to write"


def _is_any_port(address: object) -> bool:
    """Return whether a socket asks for any free port, as libraries do to try a protocol."""
    return isinstance(address, tuple) and len(address) > 1 and address[1] == 0


def _path(value: Any) -> str:
    """Return a path as text; empty for a descriptor."""
    if isinstance(value, int):
        return ""
    try:
        return os.path.abspath(os.fsdecode(value))
    except TypeError:
        return str(value)


def _writes(arguments: tuple[Any, ...]) -> bool:
    mode, flags = arguments[1], arguments[2]
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & WRITING)


def _is_bytecode(path: str) -> bool:
    folder, name = os.path.split(path)
    return os.path.basename(folder) == "__pycache__" or ".pyc" in name


def _is_new_temporary(path: str) -> bool:
    return path.startswith(tempfile.gettempdir() + os.sep) and not os.path.lexists(path)


def _is_own(path: str, temporary: list[str]) -> bool:
    """Return whether a path is a temporary file of this process, or lies in such a folder."""
    if _is_bytecode(path) or os.path.basename(path) == "__pycache__":
        return True
    return any(path == own or path.startswith(own + os.sep) for own in temporary)


def _wrap(standby: Standby, functions: tuple[str, ...], module: ModuleType) -> None:
    for name in functions:
        if hasattr(module, name):
            held = _held(standby, name, getattr(module, name))
            setattr(module, name, held)
            for binding in _bindings.get((module.__name__, name), ()):
                binding.set(held)


def _held(standby: Standby, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        standby.hold(f"it calls {name}")
        return original(*args, **kwargs)

    return function


def _wrap_files(standby: Standby, module: Any) -> None:
    _wrap(standby, FILE_FUNCTIONS, module)
    _wrap_class(standby, module.FileIO, mode=2, default="r")


def _wrap_h5py(standby: Standby, module: Any) -> None:
    _wrap_class(standby, module.File, mode=2, default="r")


def _wrap_class(standby: Standby, kind: Any, *, mode: int, default: str) -> None:
    """Hold the constructor of a file unless its argument ``mode`` says that it only reads."""
    original = kind.__init__

    @functools.wraps(original)
    def __init__(*args: Any, **kwargs: Any) -> None:
        text = args[mode] if len(args) > mode else kwargs.get("mode", default)
        if text not in ("r", "rb"):
            standby.hold(f"it opens a {kind.__name__} with mode {text}")
        original(*args, **kwargs)

    kind.__init__ = __init__


def _wrap_records(standby: Standby, module: Any) -> None:
    original = module.TFRecordWriter.__init__

    @functools.wraps(original)
    def __init__(*args: Any, **kwargs: Any) -> None:
        standby.hold("it opens a TFRecordWriter")
        original(*args, **kwargs)

    module.TFRecordWriter.__init__ = __init__


def _wrap_data(standby: Standby, module: Any) -> None:
    """Hold a pipeline that caches or saves its elements in files."""
    kind = module.DatasetV2
    cache = kind.cache

    @functools.wraps(cache)
    def held_cache(own: Any, filename: Any = "", *args: Any, **kwargs: Any) -> Any:
        if not isinstance(filename, str) or filename:
            standby.hold("a pipeline caches in a file")
        return cache(own, filename, *args, **kwargs)

    kind.cache = held_cache
    for name in ("save", "snapshot"):
        setattr(kind, name, _held(standby, f"Dataset.{name}", getattr(kind, name)))
