"""Sentences of the documents name their actor: none begins with a pronoun that names nobody.

Does: reads README.md, CONTRIBUTING.md and docs/. Never: looks into code blocks, headings, heads of
tables, or questions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORDS = ("Nobody", "Somebody", "Someone", "Who", "Whoever", "What", "Whatever")
BEGINS = re.compile(rf"(?:{'|'.join(WORDS)})\b")
ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+(?:\[[ x]\]\s+)?")
"""How an item of a list begins."""
MARKS = "*_>\"'([`“‘ "
"""Characters that may stand before a sentence's first word."""
BOLD_HEADING = re.compile(r"\*\*[^*]+(?:[.:?]\*\*|\*\*[.:])\s*")


def documents() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str) -> Iterator[str]:
    """Paragraphs, items of lists and cells of tables, each in one line."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    block: list[str] = []
    code = False
    lines = [*text.splitlines(), ""]
    for number, line in enumerate(lines):
        fence = line.lstrip().startswith("```")
        code ^= fence
        row = line.lstrip().startswith("|")
        if code or fence or row or not line.strip() or line.startswith("#") or ITEM.match(line):
            yield " ".join(block)
            block = []
        if code or fence or line.startswith("#"):
            continue
        if row:
            head = number + 1 < len(lines) and re.fullmatch(r"[|:\- ]+", lines[number + 1])
            yield from () if head else line.strip().strip("|").split("|")
        elif line.strip():
            block.append(ITEM.sub("", line).strip())


def sentences(block: str) -> Iterator[str]:
    """The sentences of a block, without a heading in bold; a link alone names a heading."""
    block = BOLD_HEADING.sub("", block.strip())
    if re.fullmatch(r"\[[^\]]*\]\([^)]*\)\.?", block):
        return
    yield from re.split(r"(?<=[.!?])[*_\"'”)]*\s+", block)


def nameless(text: str) -> list[str]:
    """Return the sentences of a document that begin with one of WORDS and ask nothing."""
    return [
        sentence.strip()
        for block in blocks(text)
        for sentence in sentences(block)
        if BEGINS.match(sentence.lstrip(MARKS)) and not sentence.rstrip(MARKS + ")”’").endswith("?")
    ]


def test_no_sentence_of_the_documents_begins_with_a_word_that_names_nobody() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {sentence[:80]}"
        for path in documents()
        for sentence in nameless(path.read_text())
    ]
    assert found == [], "name the actor: `The controller ...`, `A job that ...`"


def test_a_planted_sentence_is_found_wherever_it_stands() -> None:
    planted = (
        "Nobody waits.",
        "The job ends. What is left\nis removed.",
        "- Whoever has the token\n  may cancel.",
        "1. Someone asks.",
        "> Somebody asks.",
        "**Who asks** is told.",
        "| Word | Sense |\n|---|---|\n| kept | Whatever stays. |",
        "It is (so far) done. (What stays is named.)",
        "```\ncode\n```\nWhat stays is named.",
    )
    for text in planted:
        assert len(nameless(text)) == 1, text


def test_questions_headings_code_and_links_to_headings_are_left_alone() -> None:
    fine = (
        "# What it does",
        "What does it cost? It costs nothing.",
        "```\nWhat stays\n```",
        "- [What it costs](#what-it-costs)",
        "**What would change it.** More nodes.",
        "**What stays**: the log.",
        "| What | Why |\n|---|---|\n| a | b |",
        "The job that nobody asked for ends.",
    )
    assert [found for text in fine for found in nameless(text)] == []
