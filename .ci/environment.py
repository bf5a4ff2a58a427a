"""Makes a virtual environment with what a lock pins, from a copy in the cache if there is one.

    python .ci/environment.py LOCK FOLDER [PIP_OPTION...]

Does: installs the lock once for each hash of lock, Python and options, below
${XDG_CACHE_HOME:-~/.cache}/reshape/environments, and gives each checkout hard links to that, or
copies on another file system. An entry has its name only once it is whole, and a changed entry is
built again. It says what it waits for, and how far it is. Never: puts this project into the cache,
or has one lock wait for the installation of another. State: the cache; it may be deleted any time.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TextIO

UNUSED_DAYS = 14
"""An entry that no checkout asked for in so long is removed."""
RECIPE = "1"
"""Changes with what `install` does, so that older entries are not used."""
CONTENT, LISTING = "content", "listing"
PARTIAL = "making-"
"""How the folder of an entry that is being made or removed begins. Checkouts of before have one
lock for all entries, and remove all that begins with ``partial-``."""
POLL_S = 0.2
SAID_EVERY_S = 30.0
"""Time between two lines of a checkout that waits for another."""
PROGRESS_EVERY_S = 5.0
"""Time between two lines of an installation."""
LARGE = re.compile(r"\((\d{3,}(\.\d+)?) MB\)")
"""A download that takes so long that it is always named."""
SHEBANG_MAX = 127
"""Bytes of a first line that every kernel reads; pip has the same limit."""
SHELL = b"#!/bin/sh\n'''exec' \"%s\" \"$0\" \"$@\"\n' '''\n"
"""A beginning that the shell and Python both understand, as pip writes it."""


def cache() -> Path:
    """Return the folder of all entries; one in the checkout where the user's cannot be written."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    for folder in (Path(home) / "reshape" / "environments", Path("out/environments").absolute()):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError as error:
            print(f"{folder} cannot be written ({error})", file=sys.stderr)
    raise SystemExit("no folder for environments can be written; set XDG_CACHE_HOME to one")


def key(lock: Path, options: list[str]) -> str:
    """Return what an entry's name ends in: no two Pythons share an entry."""
    digest = hashlib.sha256(lock.read_bytes())
    interpreter = (sys.version, sys.implementation.cache_tag, os.path.realpath(sys.executable))
    digest.update(repr((RECIPE, interpreter, os.uname().machine, options)).encode())
    return digest.hexdigest()[:16]


def install(folder: Path, lock: Path, options: list[str]) -> None:
    """Make an environment of third-party packages. Raises CalledProcessError."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--progress-bar", "off"]
    checked = ("--disable-pip-version-check", "--require-hashes", "-r", str(lock))
    command = [*pip, *options, *checked]
    total = sum(1 for line in lock.read_text().splitlines() if line[:1].isalnum())
    say(f"{lock.name}: installs {total} packages, once for all checkouts; this takes minutes")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        show(process.stdout, lock.name, total)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def show(lines: Iterable[str], name: str, total: int) -> None:
    """Print, of what pip prints, how far it is."""
    collected, due_s = 0, time.monotonic() + PROGRESS_EVERY_S
    for line in lines:
        what = line.strip()
        collected += what.startswith("Collecting ")
        if what.startswith("Installing collected packages"):
            say(f"{name}: all are there, writes them to the disk")
        elif LARGE.search(what) or time.monotonic() >= due_s:
            say(f"{name}: {collected} of {total}: {what:.100}")
            due_s = time.monotonic() + PROGRESS_EVERY_S


def say(text: str) -> None:
    """Print a line that a pipe shows at once too."""
    print(text, flush=True)


@contextlib.contextmanager
def locked(path: Path, folder: Path, wait_s: float = float("inf")) -> Iterator[bool]:
    """Hold the lock of an entry for ``folder``; yield whether it came within ``wait_s`` seconds.

    While it waits it says for which checkout.
    """
    with path.open("a+") as lock:
        began_s = due_s = time.monotonic()
        while not (got := _try(lock)) and (now_s := time.monotonic()) < began_s + wait_s:
            if now_s >= due_s:
                due_s = now_s + SAID_EVERY_S
                holder = path.read_text() or "another process"
                waited = f" ({now_s - began_s:.0f} s)" if now_s > began_s + 1 else ""
                say(f"{folder}: waits{waited} for {holder}, which installs the same packages")
            time.sleep(POLL_S)
        if got:
            lock.truncate(0)
            lock.write(f"{folder} (process {os.getpid()})")
            lock.flush()
        yield got


def _try(lock: TextIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def provide(folder: Path, name: str, entries: Path, build: Callable[[Path], None]) -> None:
    """Make ``folder`` a copy of the entry ``name``, which ``build`` fills if it is not there.

    One process at a time for each entry: a second one waits, and finds the entry.
    """
    with locked(entries / f"{name}.lock", folder):
        for partial in entries.glob(f"{PARTIAL}{name}*"):  # of an interrupted run
            shutil.rmtree(partial)
        entry = entries / name
        if entry.exists() and not is_whole(entry):
            say(f"{entry} has been changed since it was made: it is made again")
            discard(entry)
        if not entry.exists():
            partial = Path(tempfile.mkdtemp(prefix=f"{PARTIAL}{name}-", dir=entries))
            build(partial / CONTENT)
            (partial / LISTING).write_text(listing(partial / CONTENT))
            partial.rename(entry)
        os.utime(entry)
        copy(entry / CONTENT, folder)
    for other in entries.iterdir():
        if other.is_dir() and time.time() - other.stat().st_mtime > UNUSED_DAYS * 86_400:
            with locked(entries / f"{other.name}.lock", folder, wait_s=0) as got:
                if got:
                    discard(other)


def discard(entry: Path) -> None:
    """Remove an entry so that half of it never has its name."""
    gone = entry.with_name(f"{PARTIAL}{entry.name}")
    with contextlib.suppress(FileNotFoundError):  # another checkout was first
        entry.rename(gone)
        shutil.rmtree(gone)


def name_prompt(folder: Path) -> None:
    """Have the shell's prompt show the environment's own name; the cache's is ``content``."""
    venv = [sys.executable, "-m", "venv", "--without-pip", "--prompt", folder.name, str(folder)]
    subprocess.run(venv, check=True)


def files(folder: Path) -> Iterator[Path]:
    """Yield every file and link, but what Python itself compiles and replaces."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        yield from (Path(place, name) for name in sorted(names))


def listing(folder: Path) -> str:
    """Return the folder's own path, and each file with what changes when it is written to."""
    lines = [str(folder)]
    for path in files(folder):
        found = path.lstat()
        lines.append(f"{found.st_size} {found.st_mtime_ns} {path.relative_to(folder)}")
    return "\n".join(lines)


def is_whole(entry: Path) -> bool:
    """Whether every file is as it was when the entry was made. Hard links share later edits."""
    try:
        was = (entry / LISTING).read_text()
    except OSError:
        return False
    return was.partition("\n")[2] == listing(entry / CONTENT).partition("\n")[2]


def copy(content: Path, folder: Path) -> None:
    """Replace ``folder`` by an environment of its own with the same packages."""
    partial = folder.with_name(f"{folder.name}.partial")
    for old in (folder, partial):
        if old.exists():
            shutil.rmtree(old)
    partial.mkdir()
    for part in sorted(content.iterdir()):
        if part.name in ("bin", "pyvenv.cfg"):
            continue
        linked = subprocess.run(["cp", "-al", part, partial], capture_output=True, check=False)
        if linked.returncode != 0:  # another file system, or one without hard links
            shutil.rmtree(partial / part.name, ignore_errors=True)
            subprocess.run(["cp", "-a", part, partial], check=True)
    origin = (content.parent / LISTING).read_text().partition("\n")[0]
    for part in (content / "pyvenv.cfg", *sorted((content / "bin").iterdir())):
        move(part, partial / part.relative_to(content), origin, str(folder.absolute()))
    partial.rename(folder)


def move(source: Path, target: Path, origin: str, home: str) -> None:
    """Copy a script, with the folder of its environment for that in which it was made."""
    target.parent.mkdir(exist_ok=True)
    if source.is_symlink():
        target.symlink_to(source.readlink())
        return
    data = source.read_bytes()
    if b"\0" not in data:
        own = data.startswith(b"#!" + os.fsencode(origin))
        data = data.replace(os.fsencode(origin), os.fsencode(home))
        first, _, rest = data.partition(b"\n")
        if own and (len(first) > SHEBANG_MAX or b" " in first):
            data = SHELL % first[2:] + rest
    target.write_bytes(data)
    target.chmod(stat.S_IMODE(source.stat().st_mode))


def main(words: list[str]) -> int:
    """The command line; the exit code is 1 if packages could not be installed."""
    if len(words) < 2:
        print("usage: environment.py LOCK FOLDER [PIP_OPTION...]", file=sys.stderr)
        return 2
    lock, folder, options = Path(words[0]).absolute(), Path(words[1]).absolute(), words[2:]
    name = f"{lock.stem}-{key(lock, options)}"
    try:
        provide(folder, name, cache(), lambda made: install(made, lock, options))
        name_prompt(folder)
    except subprocess.CalledProcessError as error:
        command = " ".join(str(word) for word in error.cmd[:4])
        print(f"{folder}: {command} ... ended with {error.returncode}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
