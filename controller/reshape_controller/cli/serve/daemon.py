"""The daemon: all concrete classes, built, started and stopped in order.

Does: open the store, recover, listen, and run until a signal. Never: touch a job at its end, or
start on a store that it cannot read. State: its parts.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import resource
import signal
import socket
import time
from collections.abc import Coroutine
from dataclasses import replace

import structlog

from reshape_controller.cli.exits import CliError, Exit, failed
from reshape_controller.cli.serve.hosts import check_inventory, not_reached
from reshape_controller.cli.serve.kubernetes_settings import PLAIN_REMEDY
from reshape_controller.cli.serve.leader_election import NotElected, elected
from reshape_controller.cli.serve.listening import listen, listen_for_public, listen_for_sidecars
from reshape_controller.cli.serve.settings import Backend, DaemonSettings
from reshape_controller.cli.serve.store_settings import store_error
from reshape_controller.core import events as ev
from reshape_controller.core.model import FieldError, JobSpec
from reshape_controller.http.app import SIDECAR_ROUTES, Server, host_names
from reshape_controller.http.connections import connections_max
from reshape_controller.http.context import Context
from reshape_controller.http.metrics import Metrics
from reshape_controller.http.openapi import version
from reshape_controller.http.room import Room
from reshape_controller.http.sidecar_tls import sidecar_tls
from reshape_controller.http.timeline import TimelineReader
from reshape_controller.live import gpu_use, inbox, retention
from reshape_controller.live.admission import Admission
from reshape_controller.live.clock import FAR_S, ClockNote, WallClock
from reshape_controller.live.control import Control
from reshape_controller.live.effects import Effects
from reshape_controller.live.journal import Fenced
from reshape_controller.live.launching import LaunchSettings
from reshape_controller.live.leadership import Leadership
from reshape_controller.live.loop import Loop, Settings, Stopped
from reshape_controller.live.marks import LAG_S, LogMarks
from reshape_controller.live.notifications.notifier import Notifier, run_all
from reshape_controller.live.notifications.targets import Target, unknown_targets
from reshape_controller.live.sidecar_hub import BehindItsJobs, SidecarHub
from reshape_controller.live.tokens import Tokens
from reshape_controller.store.mark import parse
from reshape_controller.store.protocol import Store, StoreCorrupt, StoreError
from reshape_gpu.errors import ClientError
from reshape_gpu.home import Address
from reshape_launcher.kubernetes.values import KubernetesError

OPEN_FILES = 65536

log = structlog.get_logger("reshape.daemon")


class Daemon:
    """A run of the controller on a home."""

    def __init__(
        self,
        settings: DaemonSettings,
        store: Store,
        backend: Backend,
        url: str,
        leadership: Leadership | None = None,
    ) -> None:
        self.url = url
        self._leadership = leadership
        self._containment, self._isolation = backend.containment(), backend.isolation()
        self._sidecar_names = backend.sidecar_names
        self._settings, self._store, self._hosts = settings, store, backend.hosts
        self._launcher, self._attempts = backend.launcher, backend.attempts_folders
        self._tokens = Tokens(settings.home.secret())
        clock = self._clock = WallClock()
        self._clock_note = ClockNote(settings.home.clock_file)
        _go_on(clock, self._clock_note)
        self._identities = settings.identities(clock.now_s)
        self._sessions = settings.sessions(self._identities, clock.now_s)
        self._metrics = Metrics()
        self._loop = Loop(
            store,
            Settings(settings.policy, settings.mechanism, settings.limits, seed=settings.seed),
            clock,
            _marks(settings, leadership),
            self._metrics,
        )
        url, tls = backend.sidecar_url or url, None
        if settings.kubernetes is not None and settings.kubernetes.sidecar_tls:
            tls = sidecar_tls(settings.home.secret())
            url = tls.url(url)
        self._sidecar_tls = tls
        self._hub = SidecarHub(
            self._loop.post, time.monotonic, clock.now_s, lambda: self._loop.engine.state
        )
        self._effects = Effects(
            backend.launcher,
            self._hub,
            self._tokens,
            LaunchSettings(
                url,
                backend.work_folder,
                settings.devices.mode,
                settings.device_truth,
                settings.standby,
                controller_key=tls.key_sha256 if tls is not None else None,
                overlap=settings.overlap,
            ),
            self._loop.post,
        )
        self._admission = Admission(
            lambda: self._loop.engine.state, self._refusals, backend.may_write
        )
        self._control = Control(
            self._loop,
            self._admission,
            self._effects.log_folder,
            self._hub.observed,
            self._effects.trouble,
            lambda: self._faults(backend),
        )
        self._stop = asyncio.Event()

    @functools.cached_property
    def context(self) -> Context:
        """Return the context of the handlers of all servers."""
        return Context(
            control=self._control,
            hub=self._hub,
            tokens=self._tokens,
            identities=self._identities,
            host_names=host_names(self._settings.address),
            metrics=self._metrics,
            timeline=TimelineReader(),
            clock=self._clock,
            leadership=self._leadership,
            containment=self._containment,
            isolation=self._isolation,
            sessions=self._sessions,
        )

    def servers(
        self,
        listening: socket.socket,
        for_sidecars: socket.socket | None,
        for_public: socket.socket | None,
    ) -> list[Server]:
        """Return a server for each socket."""
        sockets = (listening, for_sidecars, for_public)
        room = connections_max(sum(each is not None for each in sockets))
        shared = replace(self.context, room=Room(room))
        found = [Server(listening, shared, connections=room)]
        if for_sidecars is not None:
            tls = self._sidecar_tls.context if self._sidecar_tls is not None else None
            context = replace(shared, host_names=self._sidecar_names, pins_key=tls is not None)
            found.append(
                Server(for_sidecars, context, SIDECAR_ROUTES, connections=room, tls_too=tls)
            )
        public = self._settings.public
        if for_public is not None and public is not None:
            found.append(public.server(for_public, shared, connections=room))
        return found

    async def run(self, *servers: Server) -> None:
        """Recover, serve until a signal, stop. Raises StoreError, Fenced, CliError."""
        _on_signals(self._stop)
        stop = asyncio.create_task(self._stopped(), name="stop")
        look = functools.partial(self._hosts.recovered, self._loop)
        starting = asyncio.create_task(self._loop.start(self._effects, look))
        await asyncio.wait((starting, stop), return_when=asyncio.FIRST_COMPLETED)
        if stop.done():  # it may hang if the store accepts nothing; as at a kill, nothing is lost
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await self._effects.stop()
            return
        await starting
        self._settings.home.note_boot()
        tasks = [
            asyncio.create_task(work, name=name)
            for name, work in (
                ("loop", self._loop.run()),
                ("watch", self._effects.watch(lambda: self._loop.engine)),
                ("hosts", self._hosts.watch(self._loop)),
                ("inbox", self._watch_inbox()),
                ("fence", self._fenced()),
                ("behind", self._hub.behind()),
                ("certificate", self._follow_certificate()),
                ("clock", self._clock_note.keep(self._clock.now_s)),
                ("retention", self._remove_old_logs()),
                ("notifications", run_all(map(self._notifier, self._settings.notify))),
                ("gpu-use", gpu_use.watch(self._loop, self._hub.observed, self._clock.now_s)),
            )
        ]
        tasks.append(stop)
        begun = asyncio.create_task(self._begin(servers), name="begin")  # it may hang too
        try:
            await asyncio.wait((begun, *tasks), return_when=asyncio.FIRST_COMPLETED)
            if begun.done():
                with contextlib.suppress(Stopped):  # the loop raises its own reason
                    begun.result()
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            begun.cancel()
            await self._end(servers, [*tasks, begun])

    def _faults(self, backend: Backend) -> tuple[str, ...]:
        """Say which faults this daemon works around."""
        snapshot = self._loop.journal.snapshot_problem
        found = (self._effects.own_fault, backend.problem(), snapshot, self._clock.problem())
        return tuple(filter(None, found))

    def _refusals(self, spec: JobSpec) -> tuple[FieldError, ...]:
        """Name the parts of a record that this daemon cannot give."""
        return self._effects.refusals(spec) + unknown_targets(spec, self._settings.notify)

    def _notifier(self, target: Target) -> Notifier:
        return Notifier(
            target,
            self._store,
            self._loop.journal.check_fence,
            self._loop.journal.shown_seq,
            lambda: self._loop.engine.state,
            self._clock.now_s,
            self._metrics,
        )

    def _watch_inbox(self) -> Coroutine[None, None, None]:
        return inbox.watch(self._loop, self._admission, self._control, self._identities)

    async def _begin(self, servers: tuple[Server, ...]) -> None:
        await self._add_profiles()
        await self._hosts.add(self._loop)
        # Not earlier: without hosts a record would be rejected.
        for server in servers:
            server.start()
        self._settings.home.write_address(Address(self.url, os.getpid(), version()))

    async def _add_profiles(self) -> None:
        missing = self._settings.profiles.missing(self._loop.engine.state.profiles)
        commits = (self._loop.commit(ev.ProfileRecorded(profile)) for profile in missing)
        await asyncio.gather(*commits)  # one append, for each may take seconds

    async def _fenced(self) -> None:
        """Stop once another controller writes the log.

        The next append would fail too, but an isolated controller may have nothing to append.
        """
        if self._leadership is None:
            await asyncio.Event().wait()
        else:
            await self._leadership.watch_log(self._loop.journal)

    async def _follow_certificate(self) -> None:
        public = self._settings.public
        if public is None or public.certificate is None:
            await asyncio.Event().wait()
        else:
            await public.certificate.follow()

    async def _remove_old_logs(self) -> None:
        days, folders = self._settings.keep_logs_days, self._attempts
        if days is None or not folders:
            await asyncio.Event().wait()
        else:
            keep_s, now_s = days * retention.DAY_S, self._clock.now_s
            trusted = self._clock.trusted
            await retention.watch(folders, self._store, self._launcher, keep_s, now_s, trusted)

    async def _stopped(self) -> None:
        await self._stop.wait()
        log.info("stopping", jobs="not touched")

    async def _end(self, servers: tuple[Server, ...], tasks: list[asyncio.Task[None]]) -> None:
        self._clock_note.write(self._clock.now_s())
        for server in servers:
            await server.stop()
        await self.context.timeline.stop()
        self._loop.stop()
        work, *others = tasks
        for task in others:
            task.cancel()
        await asyncio.gather(work, *others, return_exceptions=True)
        await self._effects.stop()


async def serve(settings: DaemonSettings) -> None:
    """Run the daemon until SIGTERM or SIGINT. Raises CliError with what, where, remedy."""
    home = settings.home
    home.prepare()
    lock = home.lock()
    home.close_files()
    allow_open_files()
    store, backend = settings.store.make(), settings.backend()
    try:
        listening = await listen(settings, backend.launcher)
        for_sidecars, for_public = listen_for_sidecars(settings), listen_for_public(settings)
        port = listening.getsockname()[1]
        shown = f"[{settings.address}]" if ":" in settings.address else settings.address
        url = f"http://{shown}:{port}"
        async with elected(settings, url, listening, for_sidecars, for_public) as leadership:
            await store.open()
            await check_inventory(settings.devices, backend.name, store, home)
            daemon = Daemon(settings, store, backend, url, leadership)
            log.info(
                "listens",
                url=daemon.url,
                home=str(home.folder),
                store=settings.store.text,
                devices=settings.devices.text,
                public=settings.public.url if settings.public is not None else "no",
                launcher=backend.name,
                containment=daemon.context.containment.hold.value,
            )
            place = settings.kubernetes
            if place is not None and place.is_plain:
                said = {"transport": place.transport, "remedy": PLAIN_REMEDY}
                log.warning("sidecars-in-plain", url=place.sidecar_url, **said)
            await daemon.run(*daemon.servers(listening, for_sidecars, for_public))
    except NotElected:
        log.info("stopping", jobs="not touched")
    except StoreCorrupt as error:
        raise _store_corrupt(error) from None
    except StoreError as error:
        raise store_error(error, settings.store.text) from None
    except Fenced as error:
        remedy = "a store has one controller: stop the other one"
        if settings.lease is not None:
            remedy = "restart this one: it then stands by"
        raise failed(Exit.FAILED, str(error), settings.store.text, remedy) from None
    except BehindItsJobs as error:
        remedy = (
            "restore the right store; or end these containers and keep this store "
            "(docs/operations.md, Backup and restore); or stop the other controller"
        )
        raise failed(Exit.FAILED, str(error), settings.store.text, remedy) from None
    except ClientError:
        raise
    except KubernetesError as error:
        raise not_reached(error, "--launcher kubernetes") from None
    except Exception as error:
        log.exception("stopped-by-a-defect")
        raise failed(
            Exit.FAILED,
            f"the daemon stopped because of a defect; jobs train on: {error!r}",
            str(home.folder),
            "start it again; if it stops again, report it with the log above",
        ) from None
    finally:
        await store.close()
        os.close(lock)


def _marks(settings: DaemonSettings, leadership: Leadership | None) -> LogMarks:
    """Return the marks of the log: the home's, and what the leader before left in the lease."""
    inherited = parse(leadership.inherited) if leadership is not None else None
    lag_s = LAG_S if settings.store.server is not None else 0.0
    marks = LogMarks(settings.store.mark_file(settings.home.folder), inherited, lag_s=lag_s)
    if leadership is not None:
        leadership.note = marks.lease_text
    return marks


def _go_on(clock: WallClock, note: ClockNote) -> None:
    """Have the clock go on from the note of the daemon before, if it is of this boot."""
    noted_s = note.now_s()
    if noted_s is None:
        return
    clock.go_on_from(noted_s)
    if abs(clock.off_s()) > FAR_S:
        remedy = "set the machine's clock right; reshape status shows the difference"
        log.warning("clock-jumped", ahead_s=round(clock.off_s()), remedy=remedy)


def allow_open_files() -> None:
    """Raise the limit of open files, within reason, because each SideCar takes two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


def _store_corrupt(error: StoreCorrupt) -> CliError:
    what = str(error).removeprefix(f"{error.location}: ").partition("; remedy: ")[0]
    return failed(Exit.FAILED, f"the store is damaged: {what}", error.location, error.remedy)
