"""Checkpoint folders as a hostile job, or a broken disk, leaves them.

Each function changes the folder of attempt 1 of a job; ``KINDS`` has all of them by name.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

HUGE_BYTES = 1 << 40
LONG_BYTES = 4 << 30
CANDIDATES = 3_000
DEPTH = 3_000
STEP = "step-0000000009-a1"

Change = Callable[[Path], None]


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(LONG_BYTES)


def nested(path: Path) -> None:
    path.write_text("[" * 900_000)


def noise(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 64)


def to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def to_passwd(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def listening(path: Path) -> None:
    where = os.getcwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(where)


def folder(path: Path) -> None:
    path.mkdir()


FILES: dict[str, Change] = {
    "fifo": fifo,
    "endless": endless,
    "sparse": sparse,
    "nested": nested,
    "noise": noise,
    "to-itself": to_itself,
    "to-passwd": to_passwd,
    "socket": listening,
    "folder": folder,
}
"""What a file can be instead of itself."""


def _as_claim(make: Change) -> Change:
    def change(checkpoints: Path) -> None:
        path = checkpoints / "claim.json"
        path.unlink(missing_ok=True)
        make(path)

    return change


def _as_manifest(make: Change) -> Change:
    def change(checkpoints: Path) -> None:
        (checkpoints / STEP).mkdir()
        make(checkpoints / STEP / "manifest.json")

    return change


def _with_entry(name: str, size_bytes: int, make: Change | None = None) -> Change:
    def change(checkpoints: Path) -> None:
        step = checkpoints / STEP
        step.mkdir()
        if make is not None:
            make(step / name)
        entry = {"name": name, "size_bytes": size_bytes, "sha256": "0" * 64}
        fields = {"step": 9, "epoch": 0, "attempt": 1, "generation": 77, "files": [entry]}
        (step / "manifest.json").write_text(json.dumps(fields))

    return change


def _terabyte(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(HUGE_BYTES)


def _many(checkpoints: Path) -> None:
    for number in range(CANDIDATES):
        (checkpoints / f"step-{number:010d}-a1").mkdir()


def _deep(checkpoints: Path) -> None:
    """A folder so deep that neither a path nor a stack reaches its end."""
    where = os.open(".", os.O_RDONLY)
    try:
        os.chdir(checkpoints)
        name = ".tmp-a1-7-9"
        for _ in range(DEPTH):
            os.mkdir(name)
            os.chdir(name)
            name = "d"
        Path("file").touch()
    finally:
        os.fchdir(where)
        os.close(where)


def _odd_names(checkpoints: Path) -> None:
    raw = os.fsencode(checkpoints)
    for name in (b"step-\xff\xfe", b"step-0000000009-a1\n", b".tmp-a1-\x1b[2J"):
        os.mkdir(raw + b"/" + name)


KINDS: dict[str, Change] = {
    **{f"claim-{name}": _as_claim(make) for name, make in FILES.items()},
    **{f"manifest-{name}": _as_manifest(make) for name, make in FILES.items()},
    "entry-fifo": _with_entry("w", 0, fifo),
    "entry-endless": _with_entry("w", 0, endless),
    "entry-terabyte": _with_entry("w", HUGE_BYTES, _terabyte),
    "entry-null-byte": _with_entry("a\0b", 1),
    "entry-outside": _with_entry("../../../etc/passwd", 1),
    "entry-long-name": _with_entry("x" * 5000, 1),
    "many": _many,
    "deep": _deep,
    "odd-names": _odd_names,
}
