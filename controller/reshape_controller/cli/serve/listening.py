"""The sockets of a daemon: its own on loopback, and others for SideCars in pods and for people
elsewhere.

Does: bind them, the first if possible on the port that the SideCars of this home know. Never: offer
more than the SideCars' API beyond loopback without TLS or a trusted proxy.
"""

from __future__ import annotations

import socket
import urllib.parse

from reshape_controller.cli.exits import CliError, Exit, failed
from reshape_controller.cli.serve.settings import DaemonSettings
from reshape_controller.http.app import CannotListen, bind, bind_beyond_loopback
from reshape_launcher.spec import Launcher


async def listen(settings: DaemonSettings, launcher: Launcher) -> socket.socket:
    """Return the socket for people and, with local jobs, for SideCars. Raises CliError."""
    address = settings.address
    before = None if settings.kubernetes is not None else _before(settings)
    known = before.port if before is not None else None
    port = settings.port if settings.port_is_asked_for and settings.port else known
    try:
        elsewhere = before is not None and (address, port) != (before.hostname, before.port)
        if before is not None and elsewhere and await _containers(launcher):
            raise _elsewhere(before, address, port)
        try:
            return bind(address, settings.port if port is None else port)
        except CannotListen as error:
            if error.refused or settings.port:
                raise
            if settings.kubernetes is None and await _containers(launcher):
                raise
            return bind(address, 0)
    except CannotListen as error:
        raise _cannot("--bind" if error.refused else "--port", error) from None


def listen_for_sidecars(settings: DaemonSettings) -> socket.socket | None:
    """Return the socket for pods; None if SideCars are on this machine. Raises CliError."""
    place = settings.kubernetes
    if place is None:
        return None
    try:
        return bind_beyond_loopback(place.sidecar_address, place.sidecar_port)
    except CannotListen as error:
        raise _cannot("--sidecar-bind", error) from None


def listen_for_public(settings: DaemonSettings) -> socket.socket | None:
    """Return the socket for people elsewhere; None without ``public_bind``. Raises CliError."""
    public = settings.public
    if public is None:
        return None
    try:
        return bind_beyond_loopback(public.address, public.port)
    except CannotListen as error:
        raise _cannot("--public-bind", error) from None


def _before(settings: DaemonSettings) -> urllib.parse.SplitResult | None:
    """Return the address of this home's last daemon."""
    before = settings.home.address()
    return urllib.parse.urlsplit(before.url) if before is not None else None


def _elsewhere(before: urllib.parse.SplitResult, address: str, port: int | None) -> CliError:
    """Return the error for an address that the SideCars of running jobs do not know."""
    what = "running jobs of this home reach the daemon at"
    if address != before.hostname:
        what = f"{what} {before.hostname}, not {address}"
        remedy = f"give --bind {before.hostname} until these jobs have ended"
        return failed(Exit.FAILED, what, f"--bind {address}", remedy)
    what = f"{what} port {before.port}, not {port}"
    remedy = f"leave out --port, or give --port {before.port}, until these jobs have ended"
    return failed(Exit.FAILED, what, f"--port {port}", remedy)


async def _containers(launcher: Launcher) -> bool:
    """Return True if a container of this home runs."""
    return any(status.running for status in await launcher.containers())


def _cannot(where: str, error: CannotListen) -> CliError:
    return failed(Exit.USAGE if error.refused else Exit.FAILED, str(error), where, error.remedy)
