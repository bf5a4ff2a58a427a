"""The sockets of a daemon: its own on loopback, and one for SideCars in pods.

Does: binds them, the first on the port that the SideCars of this home know wherever that is
possible. Never: offers anything but the SideCars' link beyond loopback. State: none.
"""

from __future__ import annotations

import socket
import urllib.parse

from reshape_controller.cli.exits import CliError, Exit, failed
from reshape_controller.cli.serve.settings import DaemonSettings
from reshape_controller.http.app import CannotListen, bind, bind_for_sidecars
from reshape_launcher.spec import Launcher


async def listen(settings: DaemonSettings, launcher: Launcher) -> socket.socket:
    """The socket for people and, with local jobs, for SideCars. Raises CliError."""
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
    """The socket that pods reach; None where SideCars are on this machine. Raises CliError."""
    place = settings.kubernetes
    if place is None:
        return None
    try:
        return bind_for_sidecars(place.sidecar_address, place.sidecar_port)
    except CannotListen as error:
        raise _cannot("--sidecar-bind", error) from None


def _before(settings: DaemonSettings) -> urllib.parse.SplitResult | None:
    """Where this home's daemon listened before."""
    before = settings.home.address()
    return urllib.parse.urlsplit(before.url) if before is not None else None


def _elsewhere(before: urllib.parse.SplitResult, address: str, port: int | None) -> CliError:
    """It is to listen where the SideCars of its jobs do not ask."""
    what = "running jobs of this home reach the daemon at"
    if address != before.hostname:
        what = f"{what} {before.hostname}, not {address}"
        remedy = f"give --bind {before.hostname} until these jobs have ended"
        return failed(Exit.FAILED, what, f"--bind {address}", remedy)
    what = f"{what} port {before.port}, not {port}"
    remedy = f"leave out --port, or give --port {before.port}, until these jobs have ended"
    return failed(Exit.FAILED, what, f"--port {port}", remedy)


async def _containers(launcher: Launcher) -> bool:
    """Whether a container of this home runs."""
    return any(status.running for status in await launcher.containers())


def _cannot(where: str, error: CannotListen) -> CliError:
    return failed(Exit.USAGE if error.refused else Exit.FAILED, str(error), where, error.remedy)
