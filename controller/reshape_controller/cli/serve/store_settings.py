"""Which store a command works on: the file of the home, or a MongoDB server.

Does: settings to a store, with its credentials from a file or the environment. Never: takes a
password from the command line, where everybody on the machine can read it, or shows one. State:
none.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass, field
from pathlib import Path

from reshape_controller.cli.config import Config
from reshape_controller.cli.exits import CliError, Exit, failed
from reshape_controller.cli.home import Home
from reshape_controller.store.mongo.address import Credentials, MongoAddress, parse
from reshape_controller.store.mongo.store import MongoStore
from reshape_controller.store.protocol import Store, StoreError
from reshape_controller.store.sqlite.store import SqliteStore

CREDENTIALS_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class StorePlace:
    """A store that is not open yet. ``text`` names it for people, without anything secret."""

    text: str
    file: Path | None = None
    """The SQLite file; None for a server."""
    server: MongoAddress | None = field(default=None, repr=False)

    def make(self) -> Store:
        """The store, to be opened."""
        if self.server is not None:
            return MongoStore(self.server)
        assert self.file is not None
        return SqliteStore(self.file)


def of_file(path: Path) -> StorePlace:
    """The store in an SQLite file."""
    return StorePlace(str(path), path)


def store_place(config: Config) -> StorePlace:
    """The store of the settings ``store``, ``store_credentials`` and ``store_ca``.

    Raises CliError.
    """
    uri = config.text("store")
    if uri is None:
        for name in ("store_credentials", "store_ca"):
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
    return StorePlace(address.shown, server=address)


def store_error(error: StoreError, where: str, code: Exit = Exit.FAILED) -> CliError:
    """A StoreError as what, where, remedy."""
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
        with path.open("rb") as file:
            text = file.read(CREDENTIALS_BYTES_MAX).decode("utf-8").strip()
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
        path.read_bytes()
    except OSError as error:
        what = f"the CA certificates cannot be read: {path}: {error.strerror}"
        remedy = "give the PEM file of the CA that signed the server's certificate"
        raise failed(Exit.USAGE, what, config.source("store_ca"), remedy) from None
    return path


def _private(path: Path, what: str) -> None:
    """Raise CliError, OSError if others than the owner may read or write a file."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        text = f"other users can read or write {what} (mode {mode:03o})"
        raise failed(Exit.FAILED, text, str(path), f"chmod 600 {path}")
