"""The daemon's home folder: token, secret, address, lock.

Does: create the folder (0700) and the two secrets (0600) once, and publish the daemon's address.
Never: show a token. State: these files.

| File | Content |
|---|---|
| ``token`` | The operator's token. |
| ``tokens.json`` | The named tokens of other people, hashed. |
| ``secret`` | The key from which the tokens of attempts and the page's cookies are derived. |
| ``sessions.json`` | The sessions of the page that have ended, and a salt of their key. |
| ``address.json`` | Where the newest daemon listens or did; its SideCars know that port. |
| ``boot`` | The machine's boot id at the daemon's last record of it. |
| ``daemon.lock`` | Locked while a daemon runs. |

Controllers that stand by for each other have a home each, and share a folder of the two secrets
that the operator creates.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from reshape_controller.access import sessions, token_file
from reshape_controller.cli.exits import CliError, Exit, failed
from reshape_gpu.home import Address, HomeFolder, locked
from reshape_launcher.local.naming import HOST
from reshape_sidecar import codec, durable, foreign, state_files
from reshape_sidecar.init import files

TOKEN_BYTES = 32
_OTHERS, _OTHERS_WRITE = 0o066, 0o022
"""Modes by which other users may do more than pass, as those of jobs do."""
_SECRETS = ("token", "secret", token_file.FILE_NAME)
_SECRET_REMEDY = "restore it from a backup; or remove it, and the next start creates a new one"
LOCK_TRIES = 10
LOCK_PAUSE_S = 0.1
"""Time to retry the lock, which a client holds for a moment when it checks for a daemon."""

log = structlog.get_logger("reshape.daemon")


@dataclass(frozen=True, slots=True)
class Home(HomeFolder):
    """A home folder, as its daemon writes it. Each method reads or writes only its own file.

    Without a shared folder of secrets, they are created in the home.
    """

    @property
    def store(self) -> Path:
        return self.folder / "store.sqlite"

    @property
    def jobs(self) -> Path:
        return self.folder / "jobs"

    def attempts_of(self, host: str) -> Path:
        """Return the folder of the attempts on a host of this machine, by its name."""
        return self.jobs if host == HOST else self.folder / "hosts" / host

    @property
    def named_tokens_file(self) -> Path:
        return (self.secrets or self.folder) / token_file.FILE_NAME

    @property
    def clock_file(self) -> Path:
        return self.folder / "clock"

    @property
    def sessions_file(self) -> Path:
        return self.folder / sessions.FILE_NAME

    def prepare(self) -> None:
        """Create the folder, check that it is writable, and close it to other users, who may only
        pass through it. Raises CliError."""
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
        status = self.folder.stat()
        mode = stat.S_IMODE(status.st_mode)
        if not mode & _OTHERS:
            return
        foreign = self._foreign() if mode & _OTHERS_WRITE else ""
        if status.st_uid != os.geteuid() or foreign:
            what = f"other users can read or write the daemon's home (mode {mode:03o})"
            remedy = f"chmod 700 {self.folder}"
            if foreign:
                what += f", and {foreign} in it belongs to one"
                remedy = f"look whose {foreign} is, remove it, and then: {remedy}"
            raise failed(Exit.FAILED, what, str(self.folder), remedy)
        self.folder.chmod(mode & ~_OTHERS)
        now = f"{mode & ~_OTHERS:03o}"
        log.warning("home-closed", folder=str(self.folder), mode=f"{mode:03o}", now=now)

    def close_files(self) -> None:
        """Close what lies in the folder to other users, as what is made there now is, and log it. A
        secret that others could read is not closed: ``_checked`` refuses it."""
        closed = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                others = {stat.S_IFDIR: _OTHERS, stat.S_IFREG: 0o077}.get(
                    stat.S_IFMT(status.st_mode), 0
                )
                mode = stat.S_IMODE(status.st_mode)
                if mode & others and entry.name not in _SECRETS:
                    with contextlib.suppress(PermissionError):  # another user's
                        os.chmod(entry.path, mode & ~others)
                        closed.append(entry.name)
        if closed:
            log.warning("home-files-closed", folder=str(self.folder), names=sorted(closed))

    def _foreign(self) -> str:
        """Return the name of an entry that another user has made; empty without one."""
        with os.scandir(self.folder) as entries:
            foreign = (
                e.name for e in entries if e.stat(follow_symlinks=False).st_uid != os.geteuid()
            )
            return next(foreign, "")

    def lock(self) -> int:
        """Lock the home for this daemon until the process ends. Raises CliError."""
        try:
            fd = foreign.descriptor(self.lock_file, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            what = f"daemon.lock cannot be opened: {error.strerror}"
            raise failed(Exit.FAILED, what, str(self.lock_file), "remove it") from None
        for _ in range(LOCK_TRIES):
            if locked(fd, fcntl.LOCK_EX):
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
        with contextlib.suppress(OSError):  # on a full disk only people miss the pid
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return fd

    def token(self) -> str:
        """Return the operator's token; create it at the first start."""
        return self._secret("token")

    def current_token(self) -> Callable[[], str]:
        """Return a reader of the operator's token that follows its file. Raises CliError.

        A file that is gone, cut or open to other users changes nothing: the token before holds.
        """
        token, version = self.token(), state_files.version(self.token_file)

        def read() -> str:
            nonlocal token, version
            now = state_files.version(self.token_file)
            if now not in (None, version):
                version = now
                with contextlib.suppress(CliError, OSError, UnicodeDecodeError):
                    token = self._checked(self.token_file)
            return token

        return read

    def secret(self) -> bytes:
        """Return the key of the tokens of attempts; create it at the first start."""
        return self._secret("secret").encode()

    def write_address(self, address: Address) -> None:
        self._publish("address.json", codec.dumps(address) + "\n")

    def machine_restarted(self) -> bool:
        """True if the machine has restarted since ``note_boot``; False if that is unknown, as it is
        with a damaged file."""
        now, path = files.boot_id(), self.folder / "boot"
        before = _boot_in(path) or now
        return before != now and files.UNKNOWN_BOOT not in (before, now)

    def note_boot(self) -> None:
        """Store the machine's boot id, once the log has a record of the restart. Raises CliError.

        Earlier it would be wrong: after an interrupted start, jobs would fail because their
        containers are gone.
        """
        self._publish("boot", files.boot_id() + "\n")

    def _secret(self, name: str) -> str:
        path = (self.secrets or self.folder) / name
        if not os.path.lexists(path):
            if self.secrets is not None:
                what = f"the file {name} is missing in the folder of --secrets"
                remedy = (
                    f"create it with {TOKEN_BYTES} or more characters, the same for all controllers"
                )
                raise failed(Exit.FAILED, what, str(self.secrets), remedy)
            self._publish(name, secrets.token_hex(TOKEN_BYTES) + "\n")
        return self._checked(path)

    def _checked(self, path: Path) -> str:
        """Return the text of a secret's file. Raises CliError, OSError."""
        name = path.name
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError as error:
            what = f"the {name} file cannot be read: {error.strerror}"
            raise failed(Exit.FAILED, what, str(path), _SECRET_REMEDY) from None
        # In a pod, a volume of secrets belongs to the group of the pod's user.
        if mode & (0o077 if self.secrets is None else 0o037):
            raise failed(
                Exit.FAILED,
                f"other users can read or write the {name} file (mode {mode:03o})",
                str(path),
                f"chmod 600 {path}"
                if self.secrets is None
                else f"chmod 640 {path}; of a volume of Kubernetes set defaultMode: 0440",
            )
        try:
            text = foreign.read_text(path, foreign.SECRET_BYTES_MAX).strip()
        except UnicodeDecodeError:
            text = ""
        except OSError as error:
            what = f"the {name} file cannot be read: {error.strerror}"
            raise failed(Exit.FAILED, what, str(path), _SECRET_REMEDY) from None
        if len(text) < TOKEN_BYTES:
            what = f"the {name} file holds no valid {name}"
            remedy = "remove the file; the next start creates a new one"
            if self.secrets is not None:
                remedy = f"write {TOKEN_BYTES} or more characters into it"
            raise failed(Exit.FAILED, what, str(path), remedy)
        return text

    def _publish(self, name: str, text: str) -> None:
        """Write a file (0600) atomically. Raises CliError."""
        try:
            durable.write_whole(self.folder / name, text.encode(), 0o600)
        except OSError as error:
            what = f"{name} cannot be written in the daemon's home: {error.strerror}"
            remedy = "free space on its disk, or give another --home"
            raise failed(Exit.FAILED, what, str(self.folder), remedy) from None


def _boot_in(path: Path) -> str | None:
    """Return the boot id in a file; None without one that can be read."""
    try:
        return foreign.read_text(path, foreign.SECRET_BYTES_MAX).strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        log.warning("boot-unreadable", file=str(path), error=str(error))
        return None
