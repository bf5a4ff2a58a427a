"""Address of a MongoDB server: parsed once, checked, and shown without its secrets. Pure.

Does: refuses an address that cannot be used, or that turns off the check of the server's
certificate. No text that it returns has a password in it.
"""

from __future__ import annotations

import re
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pymongo.errors import ConfigurationError, InvalidURI
from pymongo.uri_parser import parse_uri

from reshape_controller.store.protocol import StoreError

DEFAULT_DATABASE = "reshape"
FORM = "remedy: write mongodb://HOST:PORT/DATABASE"
MESSAGE_MAX = 300
_DRIVERS_OWN = re.compile(r" \(configured timeouts: [^)]*\)|, (Timeout|full error): .*")
"""Parts of a driver's message that are for its own users: settings, servers, the whole reply."""
_SECRET_OPTIONS = ("tlscertificatekeyfilepassword", "authmechanismproperties")
_UNCHECKED_OPTIONS = ("tlsinsecure", "tlsallowinvalidcertificates", "tlsallowinvalidhostnames")


@dataclass(frozen=True, slots=True)
class Credentials:
    """User and password, not encoded. The password is left out of every text."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class MongoAddress:
    """Address of a database, with the credentials for it."""

    uri: str = field(repr=False)
    database: str
    shown: str
    """The address without its secrets, for messages."""
    credentials: Credentials | None = None
    ca: Path | None = None
    """File of the CA that signed the server's certificate; None: the system's CAs."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Texts inside ``uri`` that no message may show."""

    @property
    def options(self) -> dict[str, Any]:
        """The driver's options beside the address."""
        options: dict[str, Any] = {}
        if self.credentials is not None:
            options |= {"username": self.credentials.user, "password": self.credentials.password}
        if self.ca is not None:
            options |= {"tls": True, "tlsCAFile": str(self.ca)}
        return options

    def brief(self, text: str) -> str:
        """Shorten a driver's message to one line for users, without secrets."""
        own = (self.credentials.password,) if self.credentials is not None else ()
        line = _without_secrets(text.partition("\n")[0], (*self.secrets, *own))
        return _DRIVERS_OWN.sub("", line)[:MESSAGE_MAX]


def parse(uri: str, credentials: Credentials | None = None, ca: Path | None = None) -> MongoAddress:
    """Parse and check an address. Raises StoreError, without its secrets in the text."""
    secrets = _secrets(uri)
    try:
        parsed = parse_uri(uri)
    except (InvalidURI, ConfigurationError, OSError, ValueError) as error:
        text = _without_secrets(str(error).partition("\n")[0], secrets)[:MESSAGE_MAX]
        raise StoreError(f"the store's address cannot be used ({text}); {FORM}") from None
    for name, value in _query(uri):
        if name.lower() in _UNCHECKED_OPTIONS and value.lower() != "false":
            raise StoreError(
                f"the store's address turns off the check of the server's certificate ({name}); "
                "remedy: leave that out, and give the CA: --store-ca FILE"
            )
    if credentials is not None and parsed["username"]:
        raise StoreError(
            "the store's credentials are given twice; remedy: leave them out of the address"
        )
    name = parsed["database"] or DEFAULT_DATABASE
    hosts = ",".join(f"{host}:{port}" for host, port in parsed["nodelist"])
    return MongoAddress(uri, name, f"mongodb://{hosts}/{name}", credentials, ca, secrets)


def _secrets(uri: str) -> tuple[str, ...]:
    """Password and secret options of an address, as written and decoded; the longest first."""
    before = uri.partition("://")[2].partition("?")[0]
    password = before.rpartition("@")[0].partition(":")[2]
    values = [password, *(v for name, v in _query(uri) if name.lower() in _SECRET_OPTIONS)]
    texts = {text for v in values if v for text in (v, urllib.parse.unquote_plus(v))}
    return tuple(sorted(texts, key=lambda text: (-len(text), text)))


def _query(uri: str) -> list[tuple[str, str]]:
    return urllib.parse.parse_qsl(uri.partition("?")[2], keep_blank_values=True)


def _without_secrets(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
