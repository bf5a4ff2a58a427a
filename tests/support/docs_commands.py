"""The commands of README and docs, found in their blocks. Pure but for reading the documents.

A command is a line after ``$``, or a line of a block that begins with a program of this list.
What follows two blanks and ``#`` is a remark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("reshape", "make", "bash", "sqlite3", "cp", "curl", "python", ".venv/bin/python")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_DRAWING = re.compile("[│┌└█]")
_ASSIGNMENT = re.compile(r"[A-Z]+=\$?\(?")


@dataclass(frozen=True, slots=True)
class Command:
    """A command and the document that has it, relative to the root."""

    document: str
    text: str


def documents() -> list[Path]:
    """Everything that tells people to run something."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands() -> list[Command]:
    """Every command, in the order of the documents."""
    found = []
    for path in documents():
        name = str(path.relative_to(ROOT))
        for kind, block in _BLOCK.findall(path.read_text()):
            if kind in ("", "console", "sh", "bash") and not _DRAWING.search(block):
                found += [Command(name, text) for text in commands_of(block)]
    return found


def commands_of(block: str) -> list[str]:
    """The commands of one block."""
    found = []
    for line in block.splitlines():
        text = re.split(r"\s{2,}#|^#", line)[0].strip()
        if text.startswith("$ "):
            found.append(text[2:].strip())
        elif text.split(" ")[0] in PROGRAMS or _ASSIGNMENT.match(text):
            found.append(text)
    return found


def session(document: str) -> list[str]:
    """The commands of one document, in order."""
    return [command.text for command in commands() if command.document == document]
