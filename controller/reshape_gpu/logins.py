"""The daemons elsewhere that this user has logged in at: ``logins.json`` beside the configuration.

Does: keep URL and token of each, and which of them is current. The file has mode 0600.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from reshape_gpu.errors import LoginsUnusable
from reshape_sidecar import codec, durable, state_files

LOCAL = "local"
"""Name under which ``reshape context use`` knows the home on this machine."""


@dataclass(frozen=True, slots=True)
class Login:
    """A daemon, and this user's token there."""

    name: str
    url: str
    token: str = field(repr=False)
    ca: str | None = None
    """File of the CA certificates of its TLS; None: those of the system."""
    plain_http: bool = False
    """Whether the token may travel without TLS beyond this machine."""


@dataclass(frozen=True, slots=True)
class Logins:
    """All logins, and the name of the current; None: the home on this machine."""

    logins: tuple[Login, ...] = ()
    current: str | None = None

    def of(self, name: str | None) -> Login | None:
        return next((login for login in self.logins if login.name == name), None)

    def at(self, url: str) -> Login | None:
        """The login at a URL; the current one, if there are several."""
        found = sorted(self.logins, key=lambda login: login.name != self.current)
        return next((login for login in found if login.url == url), None)

    def having(self, login: Login) -> Logins:
        """Add or replace a login, and make it current."""
        return Logins((*self.without(login.name).logins, login), login.name)

    def without(self, name: str) -> Logins:
        others = tuple(login for login in self.logins if login.name != name)
        return Logins(others, None if self.current == name else self.current)

    def using(self, name: str) -> Logins:
        return replace(self, current=None if name == LOCAL else name)


def logins_file(env: Mapping[str, str]) -> Path:
    """Return the file, which may not exist."""
    base = env.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "reshape" / "logins.json"


def read(path: Path) -> Logins:
    """Read the file; there is no login without it. Raises LoginsUnusable."""
    try:
        found = state_files.read(Logins, path)
        mode = stat.S_IMODE(path.stat().st_mode) if found is not None else 0o600
    except (OSError, RuntimeError) as error:
        what = f"the file of logins cannot be read: {error}"
        raise LoginsUnusable.of(what, str(path), "make it readable, or remove it") from None
    if isinstance(found, state_files.Torn):
        remedy = "remove it, and log in again: reshape login URL"
        raise LoginsUnusable.of(str(found), str(path), remedy)
    if mode & 0o077:
        what = f"other users can read the tokens in the file of logins (mode {mode:03o})"
        raise LoginsUnusable.of(what, str(path), f"chmod 600 {path}")
    return found or Logins()


def write(path: Path, logins: Logins) -> None:
    """Replace the file. Raises LoginsUnusable."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        durable.write_whole(path, f"{codec.dumps(logins)}\n".encode(), mode=0o600)
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> LoginsUnusable:
    what = f"the file of logins cannot be written: {error.strerror}"
    return LoginsUnusable.of(what, str(path), "give another folder: XDG_CONFIG_HOME=DIR")
