"""FerretDB: a second server that speaks MongoDB's protocol, with users that log in by SCRAM.

Does: builds the Go module once for this user, starts the server over SQLite files on a free port,
ends it. Never: leaves a process behind. State: the build in ``~/.cache/reshape/ferretdb``
(``XDG_CACHE_HOME`` moves it); the module comes through Go's own cache of modules.

    python -m tests.support.ferretdb    # build it, and print the program's path
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pymongo
from pymongo.errors import PyMongoError

MODULE, VERSION = "github.com/FerretDB/FerretDB", "v1.24.2"
BUILD_S, START_S, STOP_S = 900.0, 60.0, 20.0
ROOT, ROOT_PASSWORD = "root", "root-password"


@dataclass(frozen=True)
class FerretDb:
    """A running server."""

    port: int

    def address(self, database: str, user: str = ROOT, password: str = ROOT_PASSWORD) -> str:
        """Address of a database, with a login."""
        login = f"{quote(user)}:{quote(password)}"
        return f"mongodb://{login}@127.0.0.1:{self.port}/{database}?authSource=admin"

    def bare(self, database: str) -> str:
        """Address of a database without a login, for credentials from a file."""
        return f"mongodb://127.0.0.1:{self.port}/{database}?authSource=admin"

    def command(self, document: dict[str, Any]) -> None:
        """Have the server's first user run a command."""
        client: pymongo.MongoClient[dict[str, Any]]
        with pymongo.MongoClient(self.address("admin"), serverSelectionTimeoutMS=5000) as client:
            client.admin.command(document)


@contextlib.contextmanager
def server(folder: Path, port: int = 0) -> Iterator[FerretDb]:
    """Run a server whose data are in ``folder``; port 0: a free one."""
    data = folder / "data"
    data.mkdir(exist_ok=True)
    port = port or _free_port()
    command = [
        str(build()),
        *("--handler=sqlite", f"--sqlite-url=file:{data}/", f"--state-dir={folder}"),
        *(f"--listen-addr=127.0.0.1:{port}", "--debug-addr=-", "--telemetry=disable"),
        *("--log-level=ERROR", "--test-enable-new-auth", "--setup-database=admin"),
        *(f"--setup-username={ROOT}", f"--setup-password={ROOT_PASSWORD}"),
    ]
    with open(folder / "ferretdb.log", "ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        made = FerretDb(port)
        _wait_until_it_answers(made, process, folder)
        yield made
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def build() -> Path:
    """Path of the program, built if it is not there. Raises RuntimeError with the remedy."""
    if shutil.which("go") is None:
        raise RuntimeError("go not found; remedy: install Go 1.24 or newer")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "reshape" / "ferretdb"
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / f"ferretdb-{VERSION}"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                made = _build(Path(scratch))
                made.replace(program)
    return program


def _build(scratch: Path) -> Path:
    """Build from a copy of the module: the program will not start without its version."""
    found = _run("go", "mod", "download", "-json", f"{MODULE}@{VERSION}", folder=scratch)
    sources = scratch / "sources"
    shutil.copytree(json.loads(found)["Dir"], sources, copy_function=shutil.copyfile)
    for path in (sources, *(each for each in sources.rglob("*") if each.is_dir())):
        path.chmod(0o755)
    (sources / "build" / "version" / "version.txt").write_text(f"{VERSION}\n")
    made = scratch / "ferretdb"
    _run("go", "build", "-mod=mod", "-trimpath", "-o", str(made), "./cmd/ferretdb", folder=sources)
    return made


def _run(*command: str, folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=BUILD_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:3])} failed: {done.stderr[-2000:]}")
    return done.stdout


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def _wait_until_it_answers(made: FerretDb, process: subprocess.Popen[bytes], folder: Path) -> None:
    until_s = time.monotonic() + START_S
    while True:
        try:
            made.command({"ping": 1})
            return
        except PyMongoError as error:
            if process.poll() is not None or time.monotonic() > until_s:
                log = (folder / "ferretdb.log").read_text()[-2000:]
                raise RuntimeError(f"no FerretDB: {error}: {log}") from None
            time.sleep(0.05)


if __name__ == "__main__":
    print(build())
    sys.exit(0)
