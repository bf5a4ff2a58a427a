"""Texts of exceptions: the line that says what is wrong.

Does: finds that line in an error of a TensorFlow graph, which lists the places of its operations
first and counts of derived errors last; names the first exception of a group. Uses the standard
library alone.
"""

from __future__ import annotations

import re

MESSAGE_CHARS_MAX = 500
GRAPH_ERROR = "Graph execution error:"
_BESIDE = re.compile(
    r"Graph execution error:|Detected at node|Node: |File \"|<stack traces|\[\[|\[Op:"
    r"|\d+ root error|\d+ successful operation|\d+ derived error"
)
"""Beginnings of the lines of such an error that do not say what is wrong."""


def message_of(text: str) -> str:
    """Return the message of an exception as one line of at most MESSAGE_CHARS_MAX characters."""
    lines = [" ".join(line.split()) for line in text.splitlines()]
    if GRAPH_ERROR in text or "derived errors ignored" in text:
        lines = [line for line in lines if line and not _BESIDE.match(line)][:1] or lines
    return " ".join(line for line in lines if line)[:MESSAGE_CHARS_MAX]


def is_end_of_graph_error(line: str) -> bool:
    """Return whether an error of a TensorFlow graph ends with this line."""
    return "[Op:" in line or _BESIDE.match(line.strip()) is not None


def describe(error: BaseException) -> tuple[str, str]:
    """Return type and message of an exception, as reports name it."""
    message = message_of(_text(error))
    if isinstance(error, BaseExceptionGroup):
        first = error.exceptions[0]
        text = message_of(_text(first))
        message = group_message(message, f"{type(first).__name__}: {text}")
    return type(error).__name__, message


def raised_by_rank(rank: int, pid: int, error: BaseException) -> str:
    """Return the line in which one of several training processes says what ends it; the type with
    its module, as Python prints it."""
    kind, message = type(error), describe(error)[1]
    name = f"{kind.__module__}.{kind.__qualname__}"
    return f"\nreshape: rank {rank} (pid {pid}) raised {name}: {message}\n"


def group_message(message: str, first: str) -> str:
    """Return the message of an exception group with the first exception in it."""
    return f"{message}; the first: {first}"[:MESSAGE_CHARS_MAX] if first else message


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # the script's own __str__ may fail
        return f"no text ({type(broken).__name__})"
