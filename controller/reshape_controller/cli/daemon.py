"""The daemon: every concrete class, put together, started and stopped in order.

Does: opens the store, recovers, listens, runs until told to stop. Never: touches a job on its way
out, or starts over a store that it cannot read. State: what it put together.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import time
import urllib.parse

import structlog

from reshape_controller.cli.daemon_settings import DaemonSettings
from reshape_controller.cli.devices import HOST, clash
from reshape_controller.cli.exits import CliError, Exit, failed
from reshape_controller.cli.home import Address
from reshape_controller.cli.store_place import store_error
from reshape_controller.core import events as ev
from reshape_controller.core.model import GpuId, HostId
from reshape_controller.http.app import CannotListen, Server, bind, host_names
from reshape_controller.http.base import Context
from reshape_controller.http.metrics import Metrics
from reshape_controller.http.openapi import version
from reshape_controller.http.timeline import TimelineReader
from reshape_controller.live import inbox
from reshape_controller.live.admission import Admission
from reshape_controller.live.clock import WallClock
from reshape_controller.live.desk import Desk
from reshape_controller.live.executor import Executor
from reshape_controller.live.journal import Fenced
from reshape_controller.live.launching import LaunchSettings
from reshape_controller.live.link import Link
from reshape_controller.live.loop import Loop, Settings, Stopped
from reshape_controller.live.tokens import Tokens
from reshape_controller.store.protocol import Store, StoreCorrupt, StoreError
from reshape_launcher.spec import Launcher

OPEN_FILES = 65536

log = structlog.get_logger("reshape.daemon")


class Daemon:
    """One run of the controller on one home."""

    def __init__(
        self, settings: DaemonSettings, store: Store, launcher: Launcher, url: str
    ) -> None:
        self.url = url
        home, devices = settings.home, settings.devices
        self._settings, self._store = settings, store
        self._tokens = Tokens(home.secret())
        self._loop = Loop(
            store,
            Settings(settings.policy, settings.mechanism, settings.limits, seed=settings.seed),
            WallClock(),
        )
        self._link = Link(self._loop.post, time.monotonic)
        self._executor = Executor(
            launcher,
            self._link,
            self._tokens,
            LaunchSettings(url, home.jobs, devices.mode, settings.device_truth),
            self._loop.post,
        )
        self._admission = Admission(lambda: self._loop.engine.state)
        self._desk = Desk(
            self._loop, self._admission, self._executor.log_folder, self._link.observed
        )
        self._stop = asyncio.Event()

    def context(self) -> Context:
        """What the handlers work with."""
        return Context(
            desk=self._desk,
            link=self._link,
            tokens=self._tokens,
            operator_token=self._settings.home.token(),
            host_names=host_names(self._settings.address),
            metrics=Metrics(),
            timeline=TimelineReader(),
        )

    async def run(self, server: Server) -> None:
        """Recover, serve until a signal, stop. Raises StoreError, Fenced."""
        _on_signals(self._stop)
        if self._settings.home.machine_restarted():
            # Before any effect, and before the ends of its containers look like their failures.
            self._loop.post(ev.HostCleaned(HostId(HOST), "the machine was restarted"))
        await self._loop.start(self._executor)
        tasks = [
            asyncio.create_task(work, name=name)
            for name, work in (
                ("loop", self._loop.run()),
                ("watch", self._executor.watch(lambda: self._loop.engine)),
                ("inbox", inbox.watch(self._loop, self._admission, self._desk)),
                ("stop", self._stopped()),
            )
        ]
        try:
            with contextlib.suppress(Stopped):  # the loop's own reason follows
                await self._begin(server)
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await self._end(server, tasks)

    async def _begin(self, server: Server) -> None:
        await self._add_profiles()
        await self._add_devices()
        # Not earlier: a record would be refused for want of a host.
        server.start()
        self._settings.home.write_address(Address(self.url, os.getpid(), version()))

    async def _add_profiles(self) -> None:
        for profile in self._settings.profiles.missing(self._loop.engine.state.profiles):
            await self._loop.commit(ev.ProfileRecorded(profile))

    async def _add_devices(self) -> None:
        devices = self._settings.devices
        gpus = tuple(GpuId(name) for name in devices.gpus)
        await self._loop.commit(ev.HostAdded(HostId(HOST), devices.gpu_type, gpus))
        missing = set(self._loop.engine.state.hosts[HostId(HOST)].gpus) - set(gpus)
        if missing:
            log.warning("gpus-not-found", gpus=sorted(missing), remedy="they stay in the inventory")

    async def _stopped(self) -> None:
        await self._stop.wait()
        log.info("stopping", jobs="not touched")

    async def _end(self, server: Server, tasks: list[asyncio.Task[None]]) -> None:
        await server.stop()
        self._loop.stop()
        work, *others = tasks
        for task in others:
            task.cancel()
        await asyncio.gather(work, *others, return_exceptions=True)
        await self._executor.stop()


async def serve(settings: DaemonSettings) -> None:
    """Run the daemon until SIGTERM or SIGINT. Raises CliError with what, where, remedy."""
    home = settings.home
    home.prepare()
    lock = home.lock()
    allow_open_files()
    store, launcher = settings.store.make(), settings.launcher()
    try:
        await store.open()
        await _check_devices(settings, store)
        listening = await _listen(settings, launcher)
        port = listening.getsockname()[1]
        shown = f"[{settings.address}]" if ":" in settings.address else settings.address
        daemon = Daemon(settings, store, launcher, f"http://{shown}:{port}")
        log.info(
            "listens",
            url=daemon.url,
            home=str(home.folder),
            store=settings.store.text,
            devices=settings.devices.text,
        )
        await daemon.run(Server(listening, daemon.context()))
    except StoreCorrupt as error:
        raise _store_corrupt(error) from None
    except StoreError as error:
        raise store_error(error, settings.store.text) from None
    except Fenced as error:
        raise failed(
            Exit.FAILED,
            str(error),
            settings.store.text,
            "one controller for one store: stop the other",
        ) from None
    except CliError:
        raise
    except Exception as error:
        log.exception("stopped-by-a-defect")
        raise failed(
            Exit.FAILED,
            f"the daemon stopped by a defect, jobs go on without it: {error!r}",
            str(home.folder),
            "start it again; if it stops again, report it with the log above",
        ) from None
    finally:
        await store.close()
        os.close(lock)


def allow_open_files() -> None:
    """As many open files as this user may have, within reason: each SideCar takes two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _check_devices(settings: DaemonSettings, store: Store) -> None:
    known = tuple(str(gpu.id) for gpu in await store.gpus())
    kind = clash(settings.devices, known)
    if kind:
        raise failed(
            Exit.FAILED,
            f"the inventory of this home has {kind} GPUs, and others are asked for now",
            str(settings.home.folder),
            f"start it with {kind} GPUs as before, or name another --home",
        )


async def _listen(settings: DaemonSettings, launcher: Launcher) -> socket.socket:
    """The socket, on the port that the SideCars of this home know wherever that is possible."""
    address, home = settings.address, settings.home
    before = home.address()
    known = urllib.parse.urlsplit(before.url).port if before is not None else None
    port = settings.port if settings.port_is_asked_for and settings.port else known
    try:
        if port is not None and port != known and await _containers(launcher):
            raise failed(
                Exit.FAILED,
                f"jobs of this home run, and their SideCars know port {known}, not {port}",
                f"--port {port}",
                f"leave --port out, or give --port {known}, until they have ended",
            )
        try:
            return bind(address, settings.port if port is None else port)
        except CannotListen as error:
            if error.refused or settings.port or await _containers(launcher):
                raise
            return bind(address, 0)
    except CannotListen as error:
        code = Exit.USAGE if error.refused else Exit.FAILED
        raise failed(
            code, str(error), "--bind" if error.refused else "--port", error.remedy
        ) from None


async def _containers(launcher: Launcher) -> bool:
    """Whether a container of this home runs."""
    return any(status.running for status in await launcher.containers())


def _on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


def _store_corrupt(error: StoreCorrupt) -> CliError:
    what = str(error).removeprefix(f"{error.location}: ").partition("; remedy: ")[0]
    return failed(Exit.FAILED, f"the store is damaged: {what}", error.location, error.remedy)
