"""Output to stdout: one document as a table, JSON or YAML. Everything else goes to stderr.

Does: choose the width (of the terminal; wide in a pipe, so that nothing is cut), and make all text
safe. Never: colour text that does not go to a terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from enum import StrEnum

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table

from reshape_controller.cli.safe_text import UNSAFE, safe, safe_json
from reshape_controller.http.json_text import plain, to_json

PIPE_COLUMNS = 220
WIDE_COLUMNS = 80
"""A terminal with fewer columns is narrow."""


class Output(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    """A table with more columns, where the command has more."""
    JSON = "json"
    JSONL = "jsonl"
    """A line of JSON for each value."""
    YAML = "yaml"

    @property
    def for_people(self) -> bool:
        """Whether it is a table."""
        return self in (Output.TABLE, Output.WIDE)


class SafeConsole(Console):
    """A console on which no text can act; it styles text by codes of its own."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control is None and UNSAFE.search(segment.text):
                yield Segment(safe(segment.text), segment.style)
            else:
                yield segment


def takes_unicode() -> bool:
    """True if stdout's encoding has every character."""
    return "utf" in (sys.stdout.encoding or "").lower()


def console(*, stderr: bool = False) -> Console:
    """Return a console on stdout or stderr."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else PIPE_COLUMNS
    return SafeConsole(file=stream, width=width, highlight=False, markup=False, emoji=False)


def emit(value: object, output: Output, draw: Callable[[], RenderableType]) -> None:
    """Write the document: ``value`` as JSON or YAML, or the result of ``draw`` for people."""
    match output:
        case Output.JSON:
            write_json(value, indent=2)
        case Output.YAML:
            import yaml  # here, because a table does not need it

            drawn = yaml.safe_dump(plain(value), sort_keys=False, allow_unicode=takes_unicode())
            if UNSAFE.search(drawn):
                drawn = yaml.safe_dump(plain(value), sort_keys=False)
            sys.stdout.write(drawn)
        case Output.JSONL:
            write_json(value)
        case Output.TABLE | Output.WIDE:
            _print(draw())


def write_json(value: object, indent: int | None = None) -> None:
    """Write a value as JSON, without ``indent`` as one line."""
    text = to_json(value, indent=indent, ascii_only=not takes_unicode())
    sys.stdout.write(safe_json(text) + "\n")


def write_text(text: str) -> None:
    """Write a text as it is, but for its unsafe characters."""
    sys.stdout.write(safe(text))


def _print(drawn: RenderableType) -> None:
    """Print; in a pipe without trailing blanks."""
    out = console()
    if out.is_terminal:
        out.print(drawn)
        return
    with out.capture() as captured:
        out.print(drawn)
    lines = captured.get().splitlines()
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in lines))


def note(text: str) -> None:
    """Write a note for people to stderr."""
    console(stderr=True).print(text, soft_wrap=True)


def grid(*columns: str, right: tuple[str, ...] = (), rest: str = "", wrap: bool = True) -> Table:
    """Return a table without lines.

    The columns ``right`` are aligned to the right. The column ``rest`` takes the rest of the width
    and wraps (or is cut, without ``wrap``); the others keep their width.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.expand = not wrap
    for name in columns:
        table.add_column(
            name,
            justify="right" if name in right else "left",
            no_wrap=name != rest or not wrap,
            overflow="fold" if name == rest and wrap else "ellipsis",
            ratio=1 if name == rest and not wrap else None,
        )
    return table


class FittingTable:
    """A table, with a narrow version for terminals on which it is too wide."""

    def __init__(self, wide: Table, narrow: Table) -> None:
        self._wide, self._narrow = wide, narrow

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        unbound = options.update(max_width=sys.maxsize)
        fits = Measurement.get(console, unbound, self._wide).maximum <= options.max_width
        yield self._wide if fits else self._narrow
