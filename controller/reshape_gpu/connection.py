"""What both clients know about their daemon, and how they word a request to it."""

from __future__ import annotations

import getpass
import os
import time
import urllib.parse
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from reshape_gpu import answers
from reshape_gpu import target as targets
from reshape_gpu.config import ARGUMENT, load
from reshape_gpu.errors import SettingError
from reshape_gpu.requests import Request, Response
from reshape_gpu.target import Target
from reshape_sidecar import foreign

if TYPE_CHECKING:
    import ssl

ANSWER_S = 60.0
"""Longest wait for a response; the daemon answers ``not ready`` much earlier."""


class Connection:
    """A daemon, and the time there."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        context: str | None = None,
        home: str | os.PathLike[str] | None = None,
        ca: str | os.PathLike[str] | None = None,
    ) -> None:
        """Without arguments, the daemon is that of the command line: by RESHAPE_URL, RESHAPE_TOKEN,
        logins, the configuration file or the home. ``context``: name of a login. ``ca``: file with
        the CA certificates of its TLS. Raises ClientError, for example if no daemon runs."""
        given = {"url": url, "context": context, "home": _text(home), "ca": _text(ca)}
        self._join(targets.found(load(given, token=token, by=ARGUMENT), os.environ))

    @classmethod
    def at(cls, there: Target) -> Self:
        """Return a client of a daemon that is known already."""
        made = cls.__new__(cls)
        made._join(there)
        return made

    def _join(self, there: Target) -> None:
        self.target = there
        self.patience_s = 0.0
        """Time for which a GET is sent again while no daemon answers; other requests are not."""
        self.now_s = time.time()
        """The daemon's time at its newest response; its clock makes no jumps."""

    @property
    def url(self) -> str:
        return self.target.url

    def _tls(self) -> ssl.SSLContext | None:
        """Return what to check certificates with; None without TLS. Raises SettingError."""
        if urllib.parse.urlsplit(self.url).scheme != "https":
            return None
        import ssl  # here, because a daemon on this machine does not need it

        try:
            if self.target.ca is not None:  # OpenSSL would wait at a FIFO
                foreign.read(self.target.ca, foreign.SETTINGS_BYTES_MAX)
            return ssl.create_default_context(cafile=self.target.ca)
        except OSError as error:
            what = f"the CA certificates cannot be read: {error.strerror or error}"
            raise SettingError.of(what, str(self.target.ca), "give PEM: --ca FILE") from None

    def _headers(self, request: Request[Any]) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {self.target.token}",
            "Content-Type": "application/json",
            "Reshape-User": _user(),
            **request.headers,
        }

    def _response(self, status: int, headers: Mapping[str, str], data: bytes) -> Response:
        """Return a successful answer. Raises ClientError for every other."""
        found = answers.response(self.target, status, headers, data)
        self.now_s = answers.now_s(found.headers) or time.time()
        return found


def seconds(at: float | datetime | None) -> float | None:
    """Return a time as Unix seconds."""
    return at.timestamp() if isinstance(at, datetime) else at


def _text(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else os.fspath(path)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "operator"
