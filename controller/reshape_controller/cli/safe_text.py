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
STATE_LENGTH_MAX = 65536
"""Of a longer state of a progress bar, a log filter shows the end."""
ENDS = re.compile("(\r\n|\n|\r)")


def safe(text: str) -> str:
    """Return the text without its unsafe characters; tabs and line feeds stay."""
    return UNSAFE.sub("", text)


def safe_json(text: str) -> str:
    """Return a JSON text with its unsafe characters as escapes; the values stay the same."""
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class LogFilter:
    """Makes a log safe that comes in parts.

    Whole sequences, such as colours, go. Texts that overwrite each other by carriage returns are
    the states of a progress bar: a line shows the text before the first return, and then the last
    state that is not blank. Bytes that are not UTF-8 become U+FFFD.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest, self._return = "", ""
        """A sequence that is not finished; a carriage return that a line feed may follow."""
        self._has_begun = False
        """Whether text of this line has been given before its first carriage return."""
        self._state: str | None = None
        """The last state of the line's progress bar; None: no carriage return came in the line."""
        self._next_state = ""

    def feed(self, data: bytes, *, last: bool = False) -> str:
        """Return the safe text of the next part. ``last``: keep nothing back for the next."""
        text = self._rest + self._decoder.decode(data, last)
        tail = max(0, len(text) - SEQUENCE_LENGTH_MAX)
        found = None if last else UNFINISHED.search(text, tail)
        begin = len(text) if found is None else found.start()
        self._rest = text[begin:]
        lines = self._return + SEQUENCE.sub("", text[:begin])
        self._return = "\r" if lines.endswith("\r") and not last else ""
        pieces = ENDS.split(lines.removesuffix(self._return))
        given = "".join([self._take(piece) for piece in pieces])
        return safe(given + self.newest_state().removesuffix("\n") if last else given)

    def newest_state(self) -> str:
        """Return the newest state of a progress bar that has not been given yet, as a line of its
        own; empty without one. For a log that is followed."""
        state = self._next_state if self._next_state.strip() else self._state or ""
        if self._state is None or not state.strip():
            return ""
        self._state, self._next_state, self._has_begun = "", "", True
        return safe(f"{state}\n")

    def _take(self, piece: str) -> str:
        """Take in text without ends of lines, or one such end, and return what can be shown."""
        if piece == "\r":
            closes = self._state is None and self._has_begun
            if self._next_state.strip() or self._state is None:
                self._state = self._next_state
            self._next_state = ""
            return "\n" if closes else ""
        if piece in ("\n", "\r\n"):
            state = self.newest_state()
            ends = "\n" if self._state is None or not self._has_begun else ""
            self._state, self._next_state, self._has_begun = None, "", False
            return state or ends
        if self._state is None:
            self._has_begun = self._has_begun or bool(piece)
            return piece
        self._next_state = (self._next_state + piece)[-STATE_LENGTH_MAX:]
        return ""
