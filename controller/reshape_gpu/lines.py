"""Parts of a log as lines of text. Pure."""

from __future__ import annotations

import codecs
from collections.abc import AsyncIterator, Iterator

from reshape_gpu.flows import LogPart


class Lines:
    """Joins bytes to lines; what is no UTF-8 becomes U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, part: LogPart) -> list[str]:
        """Return the lines that a part ends, without line breaks; the last part ends each."""
        text = self._rest + self._decoder.decode(part.data, part.is_last)
        *whole, self._rest = text.split("\n")
        if part.is_last and self._rest:
            whole.append(self._rest)
            self._rest = ""
        return whole


def joined(parts: Iterator[LogPart]) -> Iterator[str]:
    """Yield the lines of parts."""
    lines = Lines()
    for part in parts:
        yield from lines.feed(part)


async def joined_async(parts: AsyncIterator[LogPart]) -> AsyncIterator[str]:
    """Yield the lines of parts."""
    lines = Lines()
    async for part in parts:
        for line in lines.feed(part):
            yield line
