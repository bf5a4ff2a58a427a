"""The daemon that a command talks to: by URL, by login, or by the home on this machine.

Does: choose it from flags, environment, configuration and logins, and say where each part comes
from. Never: send a token without TLS beyond this machine, unless a login allows it.
"""

from __future__ import annotations

import ipaddress
import os
import shlex
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reshape_gpu import logins as logins_of
from reshape_gpu.config import TOKEN_ENV, Config
from reshape_gpu.errors import ClientError, SettingError, Unreachable
from reshape_gpu.home import HomeFolder
from reshape_gpu.logins import Login, Logins
from reshape_sidecar import foreign


@dataclass(frozen=True, slots=True)
class Target:
    """A daemon and a token, and for errors where both come from."""

    url: str
    token: str = field(repr=False)
    url_from: str
    token_from: str
    ca: Path | None = None
    """CA certificates of its TLS; None: the system's."""
    home: HomeFolder | None = None
    """Its home on this machine; None: it is elsewhere, or known by its URL alone."""

    @property
    def where(self) -> str:
        """The URL, and where it comes from."""
        return f"{self.url} (from {self.url_from})" if self.url_from else self.url


def found(config: Config, env: Mapping[str, str]) -> Target:
    """Return the daemon to talk to. Raises ClientError."""
    given = target(config, env)
    if given is not None:
        return given
    return of_home(HomeFolder(config.home, config.secrets), given_token(config, env))


def of_home(home: HomeFolder, given: tuple[str, str] | None = None) -> Target:
    """Return the daemon of a home. Raises Unreachable if none runs there.

    ``given``: a token in place of the home's, and where it comes from.
    """
    if home.is_closed():
        raise Unreachable.of(
            "this home belongs to another user, who alone can read its address and token",
            str(home.folder),
            "get a token of your own from its operator: reshape login URL; or give another home: "
            "--home DIR",
        )
    address = home.address()
    token, token_from = given or (home.read_token(), str(home.token_file))
    if address is None or token is None:
        raise Unreachable.of(
            "no daemon has ever run in this home",
            str(home.folder),
            "start one: reshape up; or give another home: --home DIR or RESHAPE_HOME; or log in "
            "at a daemon elsewhere: reshape login URL",
        )
    if not home.has_daemon():
        raise Unreachable.of(
            "the daemon is not running (running jobs train on)",
            str(home.folder),
            start_it(home),
        )
    return Target(address.url, token, str(home.address_file), token_from, home=home)


def start_it(home: HomeFolder) -> str:
    """Return the remedy if no daemon answers, as a shell command."""
    return f"start it: reshape up --home {shlex.quote(str(home.folder))}"


def target(config: Config, env: Mapping[str, str] | None = None) -> Target | None:
    """Return the daemon to talk to; None: that of the configured home. Raises ClientError.

    The first of these counts: ``home``, ``url`` or ``context`` as an argument or flag; ``url`` and
    ``context`` of the environment or configuration file; a home of those; the current login.
    """
    env = os.environ if env is None else env
    if config.is_given("home"):
        return None
    path = logins_of.logins_file(env)
    logins = logins_of.read(path)
    url, name = config.text("url"), config.text("context")
    if url is not None and (config.is_given("url") or not config.is_given("context")):
        url = checked_url(url, config.source("url"))
        return _target(config, env, url, config.source("url"), logins.at(url))
    if name == logins_of.LOCAL:
        return None
    if name is not None:
        return _of_login(config, env, named(logins, name, config.source("context")), path)
    current = logins.of(logins.current)
    if config.source("home") != "default" or current is None:
        return None
    return _of_login(config, env, current, path)


def named(logins: Logins, name: str, where: str) -> Login:
    """Return the login of a name. Raises ClientError."""
    login = logins.of(name)
    if login is None:
        known = ", ".join(each.name for each in logins.logins) or "none"
        remedy = f"log in: reshape login URL --name {name}; there are: {known}"
        raise SettingError.of(f"there is no login {name!r:.80}", where, remedy)
    return login


def given_token(config: Config, env: Mapping[str, str]) -> tuple[str, str] | None:
    """Return a token from the arguments, the environment or the configuration, and where it comes
    from; None without one. Raises ClientError."""
    if config.token is not None:
        return _checked_token(config.token, "argument token")
    if env.get(TOKEN_ENV):
        return _checked_token(env[TOKEN_ENV], f"environment {TOKEN_ENV}")
    text = config.text("token_file")
    if text is None:
        return None
    path = Path(text).expanduser()
    try:
        found = foreign.read_text(path, foreign.SECRET_BYTES_MAX)
    except (OSError, UnicodeDecodeError) as error:
        what = f"the token file cannot be read: {error}"
        raise SettingError.of(what, config.source("token_file"), "give another file") from None
    return _checked_token(found, str(path))


def _checked_token(text: str, where: str) -> tuple[str, str]:
    """Return a token without white space around it, and where it comes from. Raises SettingError,
    which does not show the token."""
    token = text.strip()
    if not (token.isascii() and token.isprintable()) or " " in token:
        what = "the token has white space or a character beyond ASCII in it"
        raise SettingError.of(what, where, "give the token alone, as it was printed")
    return token, where


def checked_url(text: str, where: str) -> str:
    """Return the URL of a daemon without a slash at its end. Raises ClientError."""
    try:
        parts = urllib.parse.urlsplit(text)
        right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # the port is no number
        right = False
    if not right or parts.query or parts.fragment or parts.username:
        what = f"{text!r:.200} is not the URL of a daemon"
        raise SettingError.of(what, where, "write https://HOST:PORT")
    return text.rstrip("/")


def check_tls(url: str, where: str, *, plain_http: bool = False) -> None:
    """Refuse to send a token without TLS beyond this machine. Raises ClientError."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "https" or plain_http or _is_loopback(parts.hostname or ""):
        return
    what = f"without TLS other machines of the network can read the token on its way to {url}"
    remedy = (
        "use https://; or ssh -L and http://127.0.0.1:PORT; or, in a network that you trust: "
        f"reshape login {url} --plain-http"
    )
    raise SettingError.of(what, where, remedy)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _of_login(config: Config, env: Mapping[str, str], login: Login, path: Path) -> Target:
    return _target(config, env, login.url, f"login {login.name} in {path}", login)


def _target(
    config: Config, env: Mapping[str, str], url: str, url_from: str, login: Login | None
) -> Target:
    check_tls(url, url_from, plain_http=login is not None and login.plain_http)
    token, token_from = given_token(config, env) or (None, "")
    if token is None and login is not None:
        token, token_from = login.token, f"login {login.name}"
    home = HomeFolder(config.home, config.secrets)
    if not token and _is_of(home, url):
        token, token_from = home.read_token(), str(home.token_file)
    if not token:
        raise _no_token(url, url_from)
    ca = config.text("ca") or (login.ca if login is not None else None)
    return Target(url, token, url_from, token_from, None if ca is None else Path(ca).expanduser())


def _is_of(home: HomeFolder, url: str) -> bool:
    """Whether the daemon that holds the home now is at the URL; no other gets the home's token."""
    address = home.address()
    return address is not None and address.url.rstrip("/") == url and home.has_daemon()


def _no_token(url: str, url_from: str) -> ClientError:
    tried = f"{url} (from {url_from}); tried {TOKEN_ENV}, token_file, the logins and the home"
    remedy = f"log in: reshape login {url}; or set {TOKEN_ENV} or RESHAPE_TOKEN_FILE"
    return Unreachable.of("there is no token for this daemon", tried, remedy)
