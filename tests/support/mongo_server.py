"""A MongoDB server for tests: the one of MONGODB_URI, else a wire-compatible one of our own.

Does: builds that once (Java and Maven; the jars come from Maven Central), starts it on a free or
given port, ends it. Never: leaves a process behind: the server ends when its standard input does.
State: the build in ``out/mongo-server``.

What it cannot show: transactions, majority, crash durability. Those need MONGODB_URI.

    python -m tests.support.mongo_server COMMAND... URI ...    # URI becomes the server's
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymongo

SOURCES = Path(__file__).parent / "mongo"
BUILD = Path(__file__).parents[2] / "out" / "mongo-server"
BUILD_S = 300.0
START_S = 60.0
STOP_S = 20.0
STORE_PASSWORD = "testing"


@dataclass
class Server:
    """A running server. ``process`` is None for somebody else's (MONGODB_URI)."""

    uri: str
    port: int
    process: subprocess.Popen[bytes] | None


@dataclass(frozen=True)
class Certificate:
    """A key with a certificate that signs itself. ``ca`` is that, as a client names it."""

    keystore: Path
    ca: Path


def certificate(folder: Path, name: str) -> Certificate:
    """A fresh one for 127.0.0.1, made by the JDK's own tool."""
    made = Certificate(folder / f"{name}.p12", folder / f"{name}.pem")
    place = ("-alias", name, "-keystore", str(made.keystore), "-storepass", STORE_PASSWORD)
    about = ("-dname", f"CN={name}", "-ext", "san=ip:127.0.0.1", "-ext", "bc=ca:true")
    _run("keytool", "-genkeypair", "-keyalg", "EC", *about, "-validity", "2", *place)
    _run("keytool", "-exportcert", "-rfc", "-file", str(made.ca), *place)
    return made


@contextmanager
def server(
    folder: Path, *, port: int = 0, file: Path | None = None, tls: Certificate | None = None
) -> Iterator[Server]:
    """Our own server; with ``file`` it keeps its data there when it is ended by ``stop``."""
    ready = folder / f"ready-{time.monotonic_ns()}"
    command = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-cp", build()]
    if tls is not None:
        command += [f"-Dkeystore={tls.keystore}", f"-Dstorepass={STORE_PASSWORD}"]
    command += ["WireServer"]
    command += [str(ready), str(port), *([str(file)] if file is not None else [])]
    with open(folder / "server.log", "ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_S
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no server: {(folder / 'server.log').read_text()[-2000:]}")
            time.sleep(0.02)
        bound = int(ready.read_text())
        yield Server(f"mongodb://127.0.0.1:{bound}/", bound, process)
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End it in order; harmless if it has ended."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def any_server(folder: Path) -> Iterator[Server]:
    """The server of MONGODB_URI if that is set, else our own in memory."""
    uri = os.environ.get("MONGODB_URI")
    if uri:
        yield Server(uri, 0, None)
        return
    with server(folder) as own:
        yield own


@contextmanager
def fresh_database(uri: str) -> Iterator[str]:
    """Address of a database of the test's own, which is gone afterwards."""
    name = f"reshape_test_{secrets.token_hex(8)}"
    base, mark, options = uri.partition("?")
    scheme, _, rest = base.partition("://")
    address = f"{scheme}://{rest.partition('/')[0]}/{name}{mark}{options}"
    try:
        yield address
    finally:
        with pymongo.MongoClient[dict[str, Any]](address, serverSelectionTimeoutMS=5000) as client:
            client.drop_database(name)


def build() -> str:
    """Class path of our server, built if it is not there. Raises RuntimeError with the remedy."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if missing:
        raise RuntimeError(
            f"{', '.join(missing)} not found; remedy: install a JDK and Maven, or set MONGODB_URI"
        )
    sources = [SOURCES / "pom.xml", SOURCES / "WireServer.java"]
    stamp = hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = BUILD / "stamp"
        if not done.exists() or done.read_text() != stamp:
            shutil.rmtree(BUILD / "lib", ignore_errors=True)
            jars = [f"-DoutputDirectory={BUILD / 'lib'}", "dependency:copy-dependencies"]
            _run("mvn", "-q", "-B", "-f", str(sources[0]), *jars)
            _run("javac", "-cp", f"{BUILD}/lib/*", "-d", str(BUILD), str(sources[1]))
            done.write_text(stamp)
    return f"{BUILD}/lib/*:{BUILD}"


def _run(*command: str) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=BUILD_S, check=False, stdin=-3
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {(done.stdout + done.stderr)[-2000:]}")


def main(words: list[str]) -> int:
    """Run a command beside a server of our own, in memory; its exit code."""
    with tempfile.TemporaryDirectory() as folder, server(Path(folder)) as running:
        command = [running.uri if word == "URI" else word for word in words]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
