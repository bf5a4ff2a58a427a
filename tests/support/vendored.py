"""Files of npm packages in the repository: ``python -m tests.support.vendored`` fetches them again.

Does: for each entry of a ``vendor.json`` gets the package of its version by ``npm pack``, compares
the file's hash with the entry, and writes the file beside it. A hash that differs is an error. For
a new version change the entry first. State: the files.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLES = (
    ROOT / "controller/reshape_controller/http/page/vendor/vendor.json",
    ROOT / "tests/page/vendor/vendor.json",
)


def entries(table: Path) -> list[dict[str, str]]:
    """Return what a table says: file, package, version, path in it, licence, hash."""
    found: list[dict[str, str]] = json.loads(table.read_text())
    return found


def differing(table: Path) -> list[str]:
    """Return the names of files that are not as their table says."""
    found = [
        entry["file"]
        for entry in entries(table)
        if _hash((table.parent / entry["file"]).read_bytes()) != entry["sha256"]
    ]
    named = {entry["file"] for entry in entries(table)}
    return found + sorted({path.name for path in table.parent.glob("*.js")} - named)


def fetch(entry: dict[str, str], into: Path) -> None:
    """Get a file from its package, and check it."""
    with tempfile.TemporaryDirectory() as folder:
        package = f"{entry['package']}@{entry['version']}"
        words = ["npm", "pack", "--silent", "--ignore-scripts", package]
        done = subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True)
        with tarfile.open(Path(folder, done.stdout.split()[-1])) as archive:
            member = archive.extractfile(entry["path"])
            content = member.read() if member is not None else b""
    if _hash(content) != entry["sha256"]:
        sys.exit(f"{package}: {entry['path']} has the hash {_hash(content)}, not that of the table")
    into.write_bytes(content)
    print(f"{into.relative_to(ROOT)}: {package}")


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    for each in TABLES:
        for one in entries(each):
            fetch(one, each.parent / one["file"])
