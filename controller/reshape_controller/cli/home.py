"""The daemon's home folder: token, secret, address, lock.

Does: makes the folder (0700) and the two secrets (0600) once, and tells clients where the daemon
is. Never: shows a token, or opens the store. State: these files. ``token`` is the operator's,
``secret`` is what the tokens of attempts are derived from, ``address.json`` says where the newest
daemon listens or did (its SideCars know that port), ``boot`` is the boot of the machine that it
saw, ``daemon.lock`` is held while one runs. Controllers that stand by for each other have a home
each, and the two secrets in one folder that somebody made for all of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from reshape_controller.cli.exits import Exit, failed
from reshape_sidecar import codec
from reshape_sidecar.init import files

TOKEN_BYTES = 32
LOCK_TRIES = 10
LOCK_PAUSE_S = 0.1
"""A client that looks whether a daemon runs holds the lock for a moment."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a daemon listens. ``pid`` is the daemon's."""

    url: str
    pid: int
    version: str


@dataclass(frozen=True, slots=True)
class Home:
    """A home folder. Nothing is read or written until it is asked for."""

    folder: Path
    secrets: Path | None = None
    """Holds ``token`` and ``secret``, made by somebody else; None: the folder, made here."""

    @property
    def store(self) -> Path:
        return self.folder / "store.sqlite"

    @property
    def jobs(self) -> Path:
        return self.folder / "jobs"

    @property
    def token_file(self) -> Path:
        return (self.secrets or self.folder) / "token"

    @property
    def address_file(self) -> Path:
        return self.folder / "address.json"

    @property
    def lock_file(self) -> Path:
        return self.folder / "daemon.lock"

    def prepare(self) -> None:
        """Make the folder and check that it can be written. Raises CliError."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            probe = self.folder / f".probe-{os.getpid()}"
            os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            probe.unlink()
        except OSError as error:
            raise failed(
                Exit.FAILED,
                f"the daemon's home cannot be written: {error.strerror}",
                str(self.folder),
                "give a folder that you can write: --home DIR or RESHAPE_HOME",
            ) from None
        mode = stat.S_IMODE(self.folder.stat().st_mode)
        if mode & 0o022:
            raise failed(
                Exit.FAILED,
                f"other users can write the daemon's home (mode {mode:03o})",
                str(self.folder),
                f"chmod 700 {self.folder}",
            )

    def lock(self) -> int:
        """Hold the home for this daemon until the process ends. Raises CliError."""
        fd = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        for _ in range(LOCK_TRIES):
            if _locked(fd, fcntl.LOCK_EX):
                break
            time.sleep(LOCK_PAUSE_S)
        else:
            pid = os.read(fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            address = self.address()
            where = f"{self.folder}" + (f" ({address.url})" if address is not None else "")
            raise failed(
                Exit.FAILED,
                f"a daemon already runs in this home (pid {pid})",
                where,
                "use it, stop it (kill -TERM PID), or give another --home",
            ) from None
        os.ftruncate(fd, 0)
        with contextlib.suppress(OSError):  # a full disk: the pid is for people alone
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return fd

    def has_daemon(self) -> bool:
        """Whether a daemon holds the home now: else its port may be another program's by now, and
        the token is not to be sent there."""
        try:
            fd = os.open(self.lock_file, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return not _locked(fd, fcntl.LOCK_SH)
        finally:
            os.close(fd)

    def token(self) -> str:
        """The operator's token, made at the first start."""
        return self._secret("token")

    def secret(self) -> bytes:
        """What the tokens of attempts are derived from, made at the first start."""
        return self._secret("secret").encode()

    def read_token(self) -> str | None:
        """The operator's token for a client; None without one. Raises CliError."""
        try:
            return self.token_file.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise failed(
                Exit.UNREACHABLE,
                f"the token file cannot be read: {error}",
                str(self.token_file),
                "run as the user who started the daemon, or give another --home",
            ) from None

    def address(self) -> Address | None:
        """Where the daemon listens, or did when it last ran; None if it never did."""
        try:
            return codec.loads(Address, self.address_file.read_bytes())
        except (OSError, codec.CodecError):
            return None

    def write_address(self, address: Address) -> None:
        self._publish("address.json", codec.dumps(address) + "\n")

    def machine_restarted(self) -> bool:
        """Whether the machine was started again since ``note_boot``, as far as that can be told."""
        now, path = files.boot_id(), self.folder / "boot"
        before = path.read_text(encoding="utf-8").strip() if path.exists() else now
        return before != now and files.UNKNOWN_BOOT not in (before, now)

    def note_boot(self) -> None:
        """The log has it. Written earlier it would be lost with a start that is broken off, and
        jobs would have failed because their containers are gone. Raises CliError."""
        self._publish("boot", files.boot_id() + "\n")

    def _secret(self, name: str) -> str:
        path = (self.secrets or self.folder) / name
        if not path.exists():
            if self.secrets is not None:
                what = f"the file {name} is missing in the folder of --secrets"
                remedy = (
                    f"create it with {TOKEN_BYTES} or more characters, the same for all controllers"
                )
                raise failed(Exit.FAILED, what, str(self.secrets), remedy)
            self._publish(name, secrets.token_hex(TOKEN_BYTES) + "\n")
        mode = stat.S_IMODE(path.stat().st_mode)
        # A volume that brings secrets into a pod gives them to the group of the pod's user.
        if mode & (0o077 if self.secrets is None else 0o037):
            raise failed(
                Exit.FAILED,
                f"other users can read or write the {name} file (mode {mode:03o})",
                str(path),
                f"chmod 600 {path}",
            )
        text = path.read_text(encoding="utf-8").strip()
        if len(text) < TOKEN_BYTES:
            what = f"the {name} file holds no valid {name}"
            raise failed(
                Exit.FAILED, what, str(path), "remove the file; the next start creates a new one"
            )
        return text

    def _publish(self, name: str, text: str) -> None:
        """Write a file (0600) whole or not at all. Raises CliError."""
        temporary = self.folder / f".{name}.{os.getpid()}"
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.folder / name)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            what = f"{name} cannot be written in the daemon's home: {error.strerror}"
            remedy = "free space on its disk, or give another --home"
            raise failed(Exit.FAILED, what, str(self.folder), remedy) from None


def _locked(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
