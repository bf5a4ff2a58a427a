"""The store of a command: the file of the home, or a MongoDB server.

Does: turn settings into a store, with credentials from a file or the environment. Never: accept a
password on the command line, which other users can read, or show one.
"""

from __future__ import annotations

import functools
import hashlib
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from reshape_controller.access.token_file import NAME, RESERVED
from reshape_controller.cli.exits import CliError, Exit, failed
from reshape_controller.cli.home import Home
from reshape_controller.store.mongo.address import Credentials, MongoAddress, parse
from reshape_controller.store.mongo.store import MongoStore
from reshape_controller.store.protocol import Store, StoreError
from reshape_controller.store.sqlite.store import SqliteStore
from reshape_gpu.config import Config
from reshape_gpu.errors import ClientError
from reshape_sidecar import foreign

CREDENTIALS_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """A store that is not open yet. ``text`` names it without secrets."""

    text: str
    file: Path | None = None
    """The SQLite file; None for a server."""
    server: MongoAddress | None = field(default=None, repr=False)
    read_again: Callable[[], MongoAddress] | None = field(default=None, repr=False, compare=False)
    """Reads the server's address with its credentials again; None: they come from no file."""
    insert_users: tuple[str, ...] = ()
    """Users with an inbox of their own on the server."""

    def make(self) -> Store:
        """Return the store, not open yet."""
        if self.server is not None:
            return MongoStore(self.server, self.read_again, self.insert_users)
        assert self.file is not None
        return SqliteStore(self.file)

    def mark_file(self, home: Path) -> Path:
        """Return the file that notes the newest acknowledged record: beside a store's file; for a
        server in the home, one for each address."""
        if self.file is not None:
            return self.file.with_name(self.file.name + ".mark")
        name = hashlib.sha256(self.text.encode()).hexdigest()[:16]
        return home / f"log-{name}.mark"


def of_file(path: Path) -> StoreSettings:
    """Return the settings of a store in an SQLite file."""
    return StoreSettings(str(path), path)


def store_settings(config: Config) -> StoreSettings:
    """Return the store of the settings ``store``, its credentials and CA, and ``insert_users``.

    Raises CliError.
    """
    uri = config.text("store")
    if uri is None:
        for name in ("store_credentials", "store_ca", "insert_users"):
            if config.text(name) is not None:
                what = f"{name} needs a store on a server; the store is a file"
                remedy = "add --store mongodb://HOST:PORT/DATABASE, or leave it out"
                raise failed(Exit.USAGE, what, config.source(name), remedy)
        return of_file(Home(config.home).store)
    where = config.source("store")
    try:
        address = parse(uri, _credentials(config), _ca(config))
    except StoreError as error:
        raise store_error(error, where, Exit.USAGE) from None
    if address.secrets and where.startswith("flag"):
        what = "--store holds a password, and other users can see the command line"
        raise failed(
            Exit.USAGE,
            what,
            where,
            "put the password into RESHAPE_STORE or a --store-credentials FILE",
        )
    if address.secrets and where.startswith("file "):
        _private(Path(where.removeprefix("file ")), "the configuration file with the password")
    again = functools.partial(_address_again, config, uri) if address.credentials else None
    users = _insert_users(config)
    return StoreSettings(address.shown, server=address, read_again=again, insert_users=users)


def _insert_users(config: Config) -> tuple[str, ...]:
    text = config.text("insert_users") or ""
    users = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    wrong = [name for name in users if not NAME.fullmatch(name) or name in RESERVED]
    if not wrong:
        return users
    what = f"insert_users: {wrong[0]!r:.80} cannot be the name of a token"
    remedy = "give names of reshape token list with commas between them"
    raise failed(Exit.USAGE, what, config.source("insert_users"), remedy)


def _address_again(config: Config, uri: str) -> MongoAddress:
    """Parse the address with its credentials as their file has them now. Raises StoreError."""
    try:
        return parse(uri, _credentials(config), _ca(config))
    except ClientError as error:
        raise StoreError(str(error)) from None


def store_error(error: StoreError, where: str, code: Exit = Exit.FAILED) -> CliError:
    """Return a StoreError as an error for users."""
    what, _, remedy = str(error).partition("; remedy: ")
    place, colon, rest = what.partition(": ")
    if colon and place.startswith(("/", "mongodb")):
        return failed(code, rest, place, remedy)
    return failed(code, what, where, remedy)


def _credentials(config: Config) -> Credentials | None:
    name = config.text("store_credentials")
    if name is None:
        return None
    path = Path(name).expanduser().absolute()
    try:
        _private(path, "the file with the store's credentials")
        text = foreign.read_text(path, CREDENTIALS_BYTES_MAX).strip()
    except (OSError, UnicodeDecodeError) as error:
        what = f"the store's credentials cannot be read: {error}"
        remedy = "give a file with one line USER:PASSWORD, mode 0600"
        raise failed(Exit.USAGE, what, config.source("store_credentials"), remedy) from None
    user, colon, password = text.partition(":")
    if not (user and colon and password) or "\n" in text:
        what = "the credentials file is not one line USER:PASSWORD"
        raise failed(Exit.USAGE, what, str(path), "write only that line, without URL encoding")
    return Credentials(user, password)


def _ca(config: Config) -> Path | None:
    name = config.text("store_ca")
    if name is None:
        return None
    path = Path(name).expanduser().absolute()
    try:
        foreign.read(path, foreign.SETTINGS_BYTES_MAX)
    except OSError as error:
        what = f"the CA certificates cannot be read: {path}: {error.strerror}"
        remedy = "give the PEM file of the CA that signed the server's certificate"
        raise failed(Exit.USAGE, what, config.source("store_ca"), remedy) from None
    return path


def _private(path: Path, what: str) -> None:
    """Raise CliError or OSError if others than the owner may read or write a file."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        text = f"other users can read or write {what} (mode {mode:03o})"
        raise failed(Exit.FAILED, text, str(path), f"chmod 600 {path}")
