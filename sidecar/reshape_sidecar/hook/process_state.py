"""What a callback holds of its process: threads, open files, writers, locks, running profilers.

Does: tells such objects, and what they are doing, without using them. They die with the process, so
the flags that a callback keeps about them must not outlive them: a callback that believes that it
has a running profiler ends the next process with an error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType
from typing import Any

ENDINGS = frozenset({"close", "finish", "join", "release", "shutdown", "stop", "terminate"})
"""Methods that end what an object holds of its process."""
CONDITIONS = ("locked", "is_set", "poll")
"""Methods that say what such an object does at the moment."""
PROFILING = frozenset(
    {"profiler", "trace_on", "start_trace", "tracemalloc", "cProfile", "setprofile", "settrace"}
)
"""Names in the code of a callback that starts or stops a profiler of the process."""
FLAGS_OF_KERAS = {
    "TensorBoard": frozenset({"_is_tracing", "_profiler_started", "_prev_summary_state"})
}
"""Attributes of Keras's own callbacks that describe the process."""


def condition(value: Any) -> str | None:
    """Return what a thread, file, writer or lock does at the moment.

    None for any other value, for a closed file and for a thread that does not run. Containers count
    as what is in them.
    """
    if isinstance(value, (list, tuple, dict)):
        parts = value.values() if isinstance(value, dict) else value
        inner = [one for one in map(condition, parts) if one is not None]
        return "; ".join(sorted(inner)) or None
    kind = type(value)
    if isinstance(value, (type, str, bytes)) or kind.__module__.split(".")[0] in (
        *("builtins", "keras", "numpy", "pandas"),
    ):
        return None
    if not any(callable(getattr(kind, name, None)) for name in ENDINGS) and not hasattr(
        kind, "is_set"
    ):
        return None
    if getattr(value, "closed", False) is True:
        return None
    if hasattr(kind, "is_alive") and not value.is_alive():
        return None
    now = [str(getattr(value, name)()) for name in CONDITIONS if hasattr(kind, name)]
    return " ".join([f"{kind.__module__}.{kind.__qualname__}", *now])


def profiles(callback: Any) -> bool:
    """Return whether a profiler runs, and the callback's code is about profilers."""
    return _profiler_runs() and any(
        name in PROFILING
        for kind in type(callback).__mro__
        for method in vars(kind).values()
        for name in _names(getattr(method, "__code__", None))
    )


def _profiler_runs() -> bool:
    modules = sys.modules
    tensorflow = getattr(modules.get("tensorflow.python.profiler.profiler_v2"), "_profiler", None)
    summaries = modules.get("tensorflow.python.ops.summary_ops_v2")
    memory = modules.get("tracemalloc")
    return (
        tensorflow is not None
        or getattr(summaries, "_current_trace_context", None) is not None
        or (memory is not None and bool(memory.is_tracing()))
        or sys.getprofile() is not None
    )


def _names(code: CodeType | None) -> Iterator[str]:
    if code is not None:
        yield from code.co_names
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from _names(constant)
