"""The home folder of a daemon on this machine, as its clients read it.

| File | Content |
|---|---|
| ``token`` | The operator's token. |
| ``address.json`` | Where the newest daemon listens or did. |
| ``daemon.lock`` | Locked while a daemon runs. |
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from reshape_gpu.errors import Unreachable
from reshape_sidecar import codec, foreign


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a daemon, and its pid."""

    url: str
    pid: int
    version: str


@dataclass(frozen=True, slots=True)
class HomeFolder:
    """A home folder. Each method reads only its own file."""

    folder: Path
    secrets: Path | None = None
    """Shared folder of the tokens and ``secret``; None: they are in the home."""

    @property
    def token_file(self) -> Path:
        return (self.secrets or self.folder) / "token"

    @property
    def address_file(self) -> Path:
        return self.folder / "address.json"

    @property
    def lock_file(self) -> Path:
        return self.folder / "daemon.lock"

    def has_daemon(self) -> bool:
        """True if a daemon holds the home now.

        If none does, its port may belong to another program, which must not get the token.
        """
        try:
            fd = foreign.descriptor(self.lock_file)
        except OSError:
            return False
        try:
            return not locked(fd, fcntl.LOCK_SH)
        finally:
            os.close(fd)

    def is_closed(self) -> bool:
        """True if the folder exists, but this user may not look into it."""
        try:
            return not os.access(self.folder, os.R_OK | os.X_OK) and self.folder.exists()
        except PermissionError:  # its parent is closed
            return True

    def read_token(self) -> str | None:
        """Return the operator's token; None without one. Raises Unreachable."""
        try:
            return foreign.read_text(self.token_file, foreign.SECRET_BYTES_MAX).strip()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise Unreachable.of(
                f"the token file cannot be read: {error}",
                str(self.token_file),
                "run as the user who started the daemon, or give another --home",
            ) from None

    def address(self) -> Address | None:
        """Return the address of the current or last daemon; None if there was none."""
        try:
            return codec.loads(Address, foreign.read(self.address_file, foreign.SECRET_BYTES_MAX))
        except (OSError, codec.CodecError):
            return None


def locked(fd: int, kind: int) -> bool:
    """Try to lock a file; return whether that worked."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
