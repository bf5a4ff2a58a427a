"""What the scripts world.py print of their process, item by item."""

from __future__ import annotations

import ctypes
import gc
import locale
import logging
import os
import resource
import signal
import sys
import threading
import warnings
from typing import Any

PR_GET_PDEATHSIG = 2
VARYING = ("RESHAPE_GENERATION", "RESHAPE_SPAWNED_AT_S", "RESHAPE_RANK_PAGE", "MASTER_PORT")


def stream(file: Any) -> list[Any]:
    """What a text stream is like."""
    names = ("encoding", "errors", "line_buffering", "write_through", "newlines", "mode", "name")
    raw = type(getattr(file.buffer, "raw", file.buffer)).__name__
    return [*(getattr(file, name) for name in names), file.isatty(), file.seekable(), raw]


def entries(name: str) -> list[str]:
    with open(f"/proc/self/{name}", "rb") as file:
        found = file.read().decode().split("\0")
    return sorted(one for one in found if one and not one.startswith(VARYING))


def open_files() -> dict[str, str]:
    """Number and kind of each open file."""
    found: dict[str, str] = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if not target.endswith("/fd"):
            found[number] = target.partition("[")[0]
    return found


def death_signal() -> int:
    number = ctypes.c_int()
    ctypes.CDLL(None).prctl(PR_GET_PDEATHSIG, ctypes.byref(number), 0, 0, 0)
    return int(number.value)


def text(name: str) -> str:
    with open(f"/proc/self/{name}") as file:
        return file.read()


def of_process() -> dict[str, Any]:
    """What the kernel and the interpreter have for this process."""
    limits = (resource.RLIMIT_NOFILE, resource.RLIMIT_STACK, resource.RLIMIT_AS)
    return {
        "argv": sys.argv,
        "orig_argv": sys.orig_argv,
        "cwd": os.getcwd(),
        "path": sys.path,
        "flags": list(sys.flags),
        "warnoptions": sys.warnoptions,
        "main": sorted(vars(sys.modules["__main__"])),
        "signals": {s: str(signal.getsignal(s)).partition(" at ")[0] for s in range(1, 32)},
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "streams": [stream(sys.stdin), stream(sys.stdout), stream(sys.stderr)],
        "parent leads": os.getsid(os.getppid()) == os.getppid(),
        "leads": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
        "death signal": death_signal(),
        "oom": text("oom_score_adj"),
        "nice": os.nice(0),
        "limits": [resource.getrlimit(limit) for limit in limits],
        "environ": {k: v for k, v in os.environ.items() if k not in VARYING},
        "order of environ": [name for name in os.environ if name not in VARYING],
        "/proc environ": entries("environ"),
        "/proc cmdline": text("cmdline").rstrip("\0"),
        "comm": text("comm"),
        "finders": [getattr(f, "__name__", type(f).__name__) for f in sys.meta_path],
        "hooks of paths": len(sys.path_hooks),
        "filters": [str(one) for one in warnings.filters],
        "recursion": sys.getrecursionlimit(),
        "excepthook": sys.excepthook is sys.__excepthook__,
        "collector": [gc.isenabled(), gc.get_threshold(), len(gc.callbacks)],
        "threads": [
            one.name for one in threading.enumerate() if not one.name.startswith("reshape")
        ],
        "locale": locale.setlocale(locale.LC_ALL, None),
        "loggers": {
            name: [getattr(one, "level", None), [str(h) for h in getattr(one, "handlers", ())]]
            for name, one in sorted(logging.root.manager.loggerDict.items())
        },
        "umask": [os.umask(0o22), os.umask(0o22)],
    }
