"""The socket of a daemon for people elsewhere: with TLS, or behind a proxy that has it.

Does: check the settings, load the certificate, and load it again after it was renewed. Never: take
plain HTTP from another machine than the proxy. Without ``public_bind`` the daemon has no such
socket. Pods have another one (``sidecar_bind``).
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from reshape_controller.cli.exits import CliError, Exit, failed
from reshape_controller.cli.serve.ip_address import address_and_port
from reshape_controller.http.app import LEADER_ROUTES, Route, Server
from reshape_controller.http.base import Gate, NotFound
from reshape_controller.http.context import Context
from reshape_controller.http.probes import StandbyContext
from reshape_gpu.config import Config
from reshape_sidecar import foreign, state_files

ONLY_PUBLIC = ("tls_cert", "tls_key", "trusted_proxy", "public_names")
LOOK_S = 60.0
"""Time between two looks for a renewed certificate."""

log = structlog.get_logger("reshape.http")


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate with its chain, and its key, in two PEM files."""

    cert: Path
    key: Path
    context: ssl.SSLContext

    def load(self) -> None:
        """Load both files, for later connections. Raises OSError."""
        for path in (self.cert, self.key):  # OpenSSL would wait at a FIFO
            foreign.read(path, foreign.SETTINGS_BYTES_MAX)
        self.context.load_cert_chain(self.cert, self.key, password=lambda: b"")

    async def follow(self) -> None:
        """Load a renewed certificate until cancelled; a damaged one changes nothing."""
        version: tuple[state_files.Version | None, ...] = ()
        while True:
            await asyncio.sleep(LOOK_S)
            now = self._version()
            if now == version:
                continue
            version = now
            try:
                self.load()
                log.info("certificate-loaded", file=str(self.cert))
            except OSError as error:  # ssl.SSLError is one
                log.warning("certificate-unusable", file=str(self.cert), error=str(error))

    def _version(self) -> tuple[state_files.Version | None, ...]:
        return state_files.version(self.cert), state_files.version(self.key)


@dataclass(frozen=True, slots=True)
class PublicAccess:
    """The checked settings of the socket. ``certificate`` None: only the proxy may connect."""

    address: str
    port: int
    names: frozenset[str]
    """Host names by which people elsewhere address the daemon."""
    certificate: Certificate | None
    proxy: str | None
    """IP address of the proxy; None: every address may connect, with TLS."""

    @property
    def peers(self) -> frozenset[str] | None:
        """Addresses that may connect; None: all."""
        return None if self.proxy is None else frozenset({self.proxy, "127.0.0.1", "::1"})

    @property
    def url(self) -> str:
        """The address for the daemon's log."""
        shown = f"[{self.address}]" if ":" in self.address else self.address
        return f"{'https' if self.certificate is not None else 'http'}://{shown}:{self.port}"

    def server(
        self,
        listening: socket.socket,
        context: Context | StandbyContext,
        routes: tuple[Route, ...] = LEADER_ROUTES,
        otherwise: type[Gate] = NotFound,
        connections: int | None = None,
    ) -> Server:
        """Return the server on the socket, for a daemon's ``context``."""
        tls = self.certificate.context if self.certificate is not None else None
        names = context.host_names | self.names
        mine = replace(context, host_names=names, peers=self.peers)
        return Server(listening, mine, routes, otherwise, connections, tls)


def public_access(config: Config) -> PublicAccess | None:
    """Return the settings of the socket for people elsewhere; None without one. Raises CliError."""
    text = config.text("public_bind")
    if text is None:
        for name in ONLY_PUBLIC:
            if config.text(name) is not None:
                remedy = "add --public-bind IP:PORT, or leave it out"
                what = f"{name} needs public_bind"
                raise failed(Exit.USAGE, what, config.source(name), remedy)
        return None
    remedy = "give an IP address of this machine and a port: --public-bind 192.0.2.7:7443"
    address, port = address_and_port(text, config.source("public_bind"), remedy)
    certificate, proxy = _certificate(config), _proxy(config)
    if certificate is None and proxy is None:
        what = f"{text}: without TLS other machines of the network can read tokens and jobs"
        remedy = (
            "give a certificate: --tls-cert FILE --tls-key FILE; or the address of a proxy with "
            "TLS, the only one that may connect: --trusted-proxy IP"
        )
        raise failed(Exit.USAGE, what, config.source("public_bind"), remedy)
    given = (config.text("public_names") or "").lower().split(",")
    names = {name.strip() for name in given} | {address, socket.gethostname().lower()}
    return PublicAccess(address, port, frozenset(names - {""}), certificate, proxy)


def _certificate(config: Config) -> Certificate | None:
    cert, key = config.text("tls_cert"), config.text("tls_key")
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        given = "tls_key" if cert is None else "tls_cert"
        what = f"{given} is only one half"
        raise failed(Exit.USAGE, what, config.source(given), "give --tls-cert and --tls-key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    found = Certificate(Path(cert).expanduser(), Path(key).expanduser(), context)
    try:
        found.load()
    except OSError as error:
        raise _unusable(found, error) from None
    return found


def _unusable(found: Certificate, error: OSError) -> CliError:
    what = f"the certificate cannot be used: {error.strerror or error}"
    remedy = "give the chain and its private key, both in PEM and without a passphrase"
    return failed(Exit.USAGE, what, f"{found.cert}, {found.key}", remedy)


def _proxy(config: Config) -> str | None:
    text = config.text("trusted_proxy")
    if text is None:
        return None
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        what = f"{text!r} is not an IP address"
        remedy = "give the address from which the proxy connects"
        raise failed(Exit.USAGE, what, config.source("trusted_proxy"), remedy) from None
