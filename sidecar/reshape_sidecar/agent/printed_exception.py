"""The exception that ended a Python program, read from the end of its log.

Does: finds the last traceback, and takes its exception if the interpreter printed it at its end:
the traceback begins in the main script, and nothing but an indented text follows. Of any other
traceback the script printed it and went on, so it did not end the program; the exception is then
not known. A message of several lines hides the exception in the same way. Of several ranks it takes
the exception of the one that their parent names: the first that failed.
"""

from __future__ import annotations

import re

from reshape_sidecar.exceptions import (
    GRAPH_ERROR,
    MESSAGE_CHARS_MAX,
    group_message,
    is_end_of_graph_error,
    message_of,
)
from reshape_sidecar.wire import PROOF_DIFFERS

HEADER = "Traceback (most recent call last):"
GROUP_HEADER = "  + Exception Group Traceback (most recent call last):"
IGNORED = "Exception ignored in"
"""Begins the report of an exception that ends nothing: of ``__del__`` or of an exit handler."""
_EXCEPTION = re.compile(r"(?P<type>[A-Za-z_][\w.<>]*)(?:: (?P<message>.*))?\Z")
_GRAPH_ERROR = re.compile(rf"(?P<type>[A-Za-z_][\w.]*): {GRAPH_ERROR}\Z")
_FRAME = re.compile(r' *File ".*", line \d+')
_FIRST_FRAME = re.compile(r'  File ".*", line \d+, in (<module>|_run_module_as_main)\Z')
_SYNTAX_ERRORS = ("SyntaxError", "IndentationError", "TabError")
"""Exceptions of the script's own text: the interpreter prints these without a traceback."""
_LIBRARIES = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWEF] |[IWEF]\d{4} \d\d:\d\d|\[(rank\d+\]:)?\[?[IWEF]"
    r"|CUDA kernel errors might|For debugging consider|Compile with `TORCH_USE_CUDA_DSA`"
)
"""Beginnings of lines that TensorFlow and PyTorch print after the interpreter's traceback."""
_FIRST_TO_FAIL = re.compile(r"reshape: (?P<who>rank \d+) of \d+ (?P<pid>\(pid \d+\)) ended with ")
_OF_RANKS = "reshape: rank "
OWN_MODULES = ("reshape_sidecar.", "_reshape_hook.")
REFUSALS = ("BatchError", "FitError", "LoaderError", "LoopError", "NotJoined", PROOF_DIFFERS)
"""Classes in these modules with which Reshape refuses to train a program as it is."""
TypeAndMessage = tuple[str, str]


def exception_in(log: str) -> TypeAndMessage | tuple[None, None]:
    """Return type and message of the exception that ended the program that wrote ``log``."""
    found = _named_in(log)
    return (found[0].rpartition(".")[2], found[1]) if found else (None, None)


def is_refusal(log: str) -> bool:
    """Return whether Reshape itself has ended the program that wrote ``log``: another start of the
    same program would end in the same way."""
    found = _named_in(log)
    own = found is not None and found[0].startswith(OWN_MODULES)
    return found is not None and own and found[0].rpartition(".")[2] in REFUSALS


def _named_in(log: str) -> TypeAndMessage | None:
    """Return the type, with its module if the log names it, and the message."""
    of_rank = _of_first_rank(log)
    if of_rank is not None:
        return of_rank
    lines = [line for line in log.splitlines() if not line.startswith(_OF_RANKS)]
    lines = [line for line in _without_ignored(lines) if not _LIBRARIES.match(line)]
    flush_left = [number for number, line in enumerate(lines) if not line[:1].isspace()]
    last = flush_left[-1] if flush_left else -1
    return _group(lines[last + 1 :]) or _graph_error(lines) or _single(lines, last)


def _of_first_rank(log: str) -> TypeAndMessage | None:
    """Return what the first rank that failed has said of its end."""
    failed = _FIRST_TO_FAIL.search(log)
    if failed is None:
        return None
    said = re.escape(f"reshape: {failed['who']} {failed['pid']} raised ")
    found = re.search(rf"^{said}(?P<type>[\w.<>]+): ?(?P<message>.*)$", log, re.MULTILINE)
    return None if found is None else (found["type"], found["message"][:MESSAGE_CHARS_MAX])


def _without_ignored(lines: list[str]) -> list[str]:
    """Return the lines without the reports of exceptions that the interpreter ignored."""
    found: list[str] = []
    rest = iter([line for line in lines if line])
    for line in rest:
        if not line.startswith(IGNORED):
            found.append(line)
            continue
        for ignored in rest:
            if ignored != HEADER and not ignored[:1].isspace():
                break  # the exception itself
    return found


def _single(lines: list[str], last: int) -> TypeAndMessage | None:
    """Return the exception of the last line that is flush left, if its traceback is above it."""
    matched = _EXCEPTION.match(lines[last]) if last >= 0 else None
    if matched is None:
        return None
    begin = last
    while begin and lines[begin - 1][:1].isspace():
        begin -= 1
    block, kind = lines[begin:last], matched["type"].rpartition(".")[2]
    if begin and lines[begin - 1] == HEADER:
        is_end = bool(block) and _FIRST_FRAME.match(block[0]) is not None
    elif kind in _SYNTAX_ERRORS:
        is_end = not block or _FRAME.match(block[0]) is not None
    else:  # the traceback may be longer than what was read of the log, the first line a part of it
        is_end = begin <= 1 and any(_FRAME.match(line) for line in block)
    return (matched["type"], (matched["message"] or "")[:MESSAGE_CHARS_MAX]) if is_end else None


def _group(lines: list[str]) -> TypeAndMessage | None:
    """Return the exception group at the end of a log; ``lines`` follow the last flush left."""
    if GROUP_HEADER not in lines:
        return None
    begin = len(lines) - lines[::-1].index(GROUP_HEADER)
    texts = [line.lstrip(" ") for line in lines[begin:]]
    texts = [text.removeprefix("| ") for text in texts if text.startswith("| ")]
    found = [match for text in texts if (match := _EXCEPTION.match(text)) is not None]
    if not texts or not _FIRST_FRAME.match(texts[0]) or not found:
        return None
    first = found[1].group() if len(found) > 1 else ""
    return found[0]["type"], group_message(found[0]["message"] or "", first)


def _graph_error(lines: list[str]) -> TypeAndMessage | None:
    """Return the error of a TensorFlow graph; its traceback may be longer than ``lines``."""
    if not lines or not is_end_of_graph_error(lines[-1]):
        return None
    for number in range(len(lines) - 1, -1, -1):
        if (found := _GRAPH_ERROR.match(lines[number])) is not None:
            message = message_of("\n".join([GRAPH_ERROR, *lines[number + 1 :]]))
            return found["type"], message
    return None
