"""Text from elsewhere, made safe for a terminal. Pure.

Does: removes the characters that a terminal obeys instead of showing them, and those that change
the order of the characters around them. ``output``, ``streams`` and the daemon's log apply it, so
no command has to.
"""

from __future__ import annotations

import codecs
import re

UNSAFE = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, except tab and line feed
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidirectional marks
    "\u2028\u2029"  # ends of lines that only some programs obey
    "\ud800-\udfff"  # halves of characters, which no encoding takes
    "]"
)
SEQUENCE = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]"  # CSI: colours, the cursor
    "|\x1b[\\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\\\)"  # OSC and the like: titles, the clipboard
)
UNFINISHED = re.compile("\x1b(?:\\[[0-?]*[ -/]*|[\\]PX^_][^\x07\x1b\n]*\x1b?)?\\Z")
"""The begin of a sequence that the next part of a log may finish."""
SEQUENCE_LENGTH_MAX = 4096
"""Longest sequence that a log filter waits for; a longer one loses its control characters only."""


def safe(text: str) -> str:
    """Return the text without its unsafe characters; tabs and line feeds stay."""
    return UNSAFE.sub("", text)


def safe_json(text: str) -> str:
    """Return a JSON text with its unsafe characters as escapes; the values stay the same."""
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class LogFilter:
    """Makes a log safe that comes in parts.

    Whole sequences, such as colours, go. A carriage return becomes a line feed, so that no line
    overwrites another. Bytes that are not UTF-8 become U+FFFD.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest, self._returned = "", False
        """A sequence that is not finished; whether a carriage return came last."""

    def feed(self, data: bytes, *, last: bool = False) -> str:
        """Return the safe text of the next part. ``last``: keep nothing back for the next."""
        text = self._rest + self._decoder.decode(data, last)
        tail = max(0, len(text) - SEQUENCE_LENGTH_MAX)
        found = None if last else UNFINISHED.search(text, tail)
        begin = len(text) if found is None else found.start()
        self._rest = text[begin:]
        lines = SEQUENCE.sub("", text[:begin])
        if not lines:
            return ""
        begins_line, self._returned = self._returned, lines.endswith("\r")
        if begins_line:
            lines = lines.removeprefix("\n")
        lines = lines.replace("\r\n", "\n").replace("\r", "\n")
        return safe(lines)
