"""Leader election of a daemon among several that stand by for each other.

Does: check that the store and the secrets are shared, answer as a standby, renew the lease while
the daemon leads, and release it at the end. Never: open the store before the election.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import signal
import socket
from collections.abc import AsyncIterator

import structlog

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.serve.settings import DaemonSettings
from reshape_controller.cli.serve.store_settings import StoreSettings
from reshape_controller.http import probes
from reshape_controller.http.app import (
    STANDBY_ROUTES,
    STANDBY_SIDECAR_ROUTES,
    Server,
    host_names,
)
from reshape_controller.http.metrics import Metrics
from reshape_controller.http.openapi import version
from reshape_controller.live.leadership import Leadership
from reshape_gpu.config import Config
from reshape_gpu.home import Address

NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")

log = structlog.get_logger("reshape.daemon")


class NotElected(Exception):
    """A signal stopped the daemon before it led."""


def lease_name(config: Config, store: StoreSettings) -> str | None:
    """Return the configured lease, after a check that daemons can share store and secrets.

    Raises CliError.
    """
    name = config.text("lease")
    if name is None:
        return None
    where = config.source("lease")
    if not NAME.fullmatch(name):
        remedy = "use lower-case letters, digits, - and ."
        raise failed(Exit.USAGE, f"lease: {name!r} is not a valid Lease name", where, remedy)
    if store.server is None:
        what = f"--lease needs a store on a server; {store.text} is a file of a single controller"
        remedy = "add --store mongodb://HOST:PORT/DATABASE, or run one controller without --lease"
        raise failed(Exit.USAGE, what, where, remedy)
    if config.secrets is None:
        what = "--lease needs --secrets: several controllers must share token and secret"
        remedy = (
            "give all controllers the same folder with the files token and secret: --secrets DIR"
        )
        raise failed(Exit.USAGE, what, where, remedy)
    return name


@contextlib.asynccontextmanager
async def elected(
    settings: DaemonSettings,
    url: str,
    people: socket.socket,
    pods: socket.socket | None,
    public: socket.socket | None,
) -> AsyncIterator[Leadership | None]:
    """Wait until this daemon leads; renew the lease within the context and release it at the end.

    Gives None without a lease. Raises NotElected, CliError.
    """
    if settings.lease is None or settings.kubernetes is None:
        yield None
        return
    cluster = settings.kubernetes.cluster()
    name = f"{socket.gethostname()}-{secrets.token_hex(4)}"
    leadership = Leadership(cluster.lease(settings.lease), name)
    keeping: asyncio.Task[None] | None = None
    try:
        settings.home.write_address(Address(url, os.getpid(), version()))
        async with _standing_by(settings, leadership, people, pods, public):
            await _won(leadership)
        keeping = asyncio.create_task(leadership.keep(), name="lease")
        yield leadership
    finally:
        if keeping is not None:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        await leadership.release()
        cluster.close()


@contextlib.asynccontextmanager
async def _standing_by(
    settings: DaemonSettings,
    leadership: Leadership,
    people: socket.socket,
    pods: socket.socket | None,
    public: socket.socket | None,
) -> AsyncIterator[None]:
    """Answer as a standby on all sockets, which stay open for the daemon."""
    names = host_names(settings.address)
    context = probes.StandbyContext(settings.identities(), names, Metrics(), leadership)
    servers = [Server(people.dup(), context, STANDBY_ROUTES, probes.Standby)]
    if pods is not None:
        found = Server(pods.dup(), context, STANDBY_SIDECAR_ROUTES, probes.PodsStandby)
        servers.append(found)
    if public is not None and settings.public is not None:
        found = settings.public.server(public.dup(), context, STANDBY_ROUTES, probes.Standby)
        servers.append(found)
    for server in servers:
        server.start()
    log.info("stands-by", name=leadership.name)
    try:
        yield
    finally:
        for server in servers:
            await server.stop()


async def _won(leadership: Leadership) -> None:
    """Wait for the lease. Raises NotElected at a signal to stop."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    tasks: list[asyncio.Task[object]] = [
        asyncio.create_task(leadership.win()),
        asyncio.create_task(stop.wait()),
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if stop.is_set():
        raise NotElected
    tasks[0].result()
