"""Texts of exceptions: the line that says what is wrong.

Does: finds that line in an error of a TensorFlow graph, which lists the places of its operations
first and counts of derived errors last. Uses the standard library alone.
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
