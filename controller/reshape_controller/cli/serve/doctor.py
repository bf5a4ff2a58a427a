"""The command doctor: checks all that ``up`` needs, before anything starts.

Does: report each failure with its remedy. It needs no daemon and leaves nothing behind (the pod of
a GPU probe is deleted).
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import http.server
import importlib.util
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from urllib.parse import urlsplit

import typer
from rich.console import RenderableType

from reshape_controller.cli.exits import Exit
from reshape_controller.cli.home import Home
from reshape_controller.cli.options import form, options_from
from reshape_controller.cli.output import emit, grid
from reshape_controller.cli.serve.kubernetes_settings import (
    PLAIN_REMEDY,
    KubernetesSettings,
    kubernetes_settings,
)
from reshape_controller.cli.serve.public_access import public_access
from reshape_controller.cli.serve.store_settings import StoreSettings, store_error, store_settings
from reshape_controller.cli.serve.up import OPTIONS, checked, devices
from reshape_controller.http.app import CannotListen, bind, bind_beyond_loopback
from reshape_controller.live.clock import FAR_S, ClockNote
from reshape_controller.store.mongo.store import MongoStore
from reshape_controller.store.protocol import StoreError
from reshape_controller.store.sqlite import file
from reshape_gpu.config import Config
from reshape_gpu.errors import ClientError
from reshape_launcher import ansible
from reshape_launcher.kubernetes.finding import Finding
from reshape_launcher.kubernetes.preflight import findings
from reshape_launcher.local import users
from reshape_launcher.local.launcher import LocalLauncher


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """All findings; ``ok`` if none is a failure."""

    ok: bool
    findings: tuple[Finding, ...]


@options_from(*OPTIONS, "output")
def doctor(config: Config) -> None:
    """Check the requirements of `reshape up`; exit 1 if a check fails."""
    with contextlib.redirect_stdout(sys.stderr):  # what the parts log is no part of the report
        found = tuple(_all(config))
    report = DoctorReport(all(finding.ok for finding in found), found)
    emit(report, form(config), lambda: table(report))
    if not report.ok:
        raise typer.Exit(Exit.FAILED)


def _all(config: Config) -> list[Finding]:
    found = [_attempt("home", str(config.home), Home(config.home).prepare)]
    place = kubernetes_settings(config)
    hosts = [_gpus(config)] if place is None else _of_kubernetes(place)
    found += hosts
    if place is None:
        found.append(_containment(config))
        found.append(_isolation(config))
    found += _addresses(config)
    found.append(_attempt("store", "", lambda: _store(store_settings(config))))
    found.append(_clock(config))
    if config.secrets is not None:
        shared = Home(config.home, config.secrets)
        found.append(_attempt("shared token", str(config.secrets), shared.token))
        found.append(_attempt("shared secret", str(config.secrets), shared.secret))
    if place is not None or hosts[0].ok:  # settings can only be checked with GPUs
        found.append(_attempt("settings", "can be used", lambda: checked(config)))
    return found


def _clock(config: Config) -> Finding:
    """Compare the machine's clock with the time that the daemon has noted in this boot."""
    noted_s = ClockNote(Home(config.home).clock_file).now_s()
    off_s = 0.0 if noted_s is None else time.time() - noted_s
    if abs(off_s) <= FAR_S:
        return Finding("clock", True, "nothing is known against it")
    way = "ahead of" if off_s > 0 else "behind"
    what = f"this machine's clock is {timedelta(seconds=round(abs(off_s)))} {way} the daemon's time"
    return Finding("clock", False, what, "set the clock right; logs are not deleted meanwhile")


def _gpus(config: Config) -> Finding:
    return _attempt("GPUs", "", lambda: devices(config, None).text)


def _addresses(config: Config) -> Iterator[Finding]:
    """Try the addresses for people. One that this home's last daemon had is that daemon's."""
    address, port = config.text("bind") or "", config.number("port") or 0
    before = Home(config.home).address()
    known = urlsplit(before.url if before is not None else "")
    asked = config.source("port") != "default" or config.text("launcher") == "kubernetes"
    if (known.hostname, known.port if asked else port) != (address, port):
        yield _bound("address", f"{address}:{port}", lambda: bind(address, port))
    with contextlib.suppress(ClientError):  # told among the settings
        public = public_access(config)
        if public is not None:
            where = (public.address, public.port)
            yield _bound(
                "public address", f"{where[0]}:{where[1]}", lambda: bind_beyond_loopback(*where)
            )


def _containment(config: Config) -> Finding:
    """Try what holds the processes of attempts; less than a cgroup is no failure."""
    held = LocalLauncher(Home(config.home).jobs).containment()
    detail = f"{held.hold.value}: {held.reason}"
    return Finding("containment", True, detail, held.remedy)


def _isolation(config: Config) -> Finding:
    """Try whether jobs can have users of their own. That jobs of the daemon's user can act as the
    operator is no failure, but that users' jobs are root is."""
    if users.is_root() and config.text("root_jobs") == "allow":
        what = "DANGER: jobs of tokens without a uid are root, and can act as the operator"
        remedy = "leave root_jobs out, and give each token a uid: reshape token create NAME --uid"
        return Finding("isolation", False, what, remedy)
    return Finding("isolation", True, users.isolation(), users.REMEDY if users.problem() else "")


def _store(place: StoreSettings) -> str:
    """Check that the store can be read, without a change; return its name. Raises CliError."""
    try:
        if place.server is not None:
            asyncio.run(_reach(MongoStore(place.server)))
        elif place.file is not None and place.file.exists():
            file.inspect(place.file)
    except StoreError as error:
        raise store_error(error, place.text) from None
    return place.text


async def _reach(store: MongoStore) -> None:
    try:
        await store.open(to_look=True)
    finally:
        await store.close()


def _of_kubernetes(place: KubernetesSettings) -> list[Finding]:
    try:
        with answering(place.sidecar_address, place.sidecar_port):
            words = (place.cluster(), place.pods, place.devices, place.sidecar_url)
            found = list(findings(*words))
    except ClientError as error:
        found = [_problem("API server", error)]
    where = (place.sidecar_address, place.sidecar_port)
    detail = f"{place.sidecar_url}, listening on {where[0]}:{where[1]}; {place.transport}"
    bound = _bound("SideCars' address", detail, lambda: bind_beyond_loopback(*where))
    found.append(replace(bound, remedy=PLAIN_REMEDY) if bound.ok and place.is_plain else bound)
    if place.by_playbook:
        found.append(
            _there(
                "ansible-runner",
                importlib.util.find_spec("ansible_runner") is not None,
                "pip install ansible-core ansible-runner, or go without: --launch-by client",
            )
        )
        playbook = ansible.playbooks() / ansible.PLAYBOOK
        found.append(
            _there(
                f"playbook {playbook.name}", playbook.is_file(), "reinstall reshape-gpu[ansible]"
            )
        )
    if place.pods.registry is not None:
        builder = shutil.which("buildah")
        found.append(_there("buildah", builder is not None, "install buildah; it builds images"))
    return found


@contextlib.contextmanager
def answering(address: str, port: int) -> Iterator[None]:
    """Answer each GET at an address, for a pod that asks there; a daemon that listens there answers
    by itself."""
    try:
        server = _Server(address, port)
    except OSError:
        yield
        return
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


class _Server(http.server.ThreadingHTTPServer):
    def __init__(self, address: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, port), _Answer)


class _Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(http.HTTPStatus.OK)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def _bound(check: str, detail: str, listen: Callable[[], socket.socket]) -> Finding:
    """Return whether an address can be listened on."""
    try:
        listen().close()
    except CannotListen as error:
        return Finding(check, False, str(error), error.remedy)
    return Finding(check, True, detail)


def _there(check: str, ok: bool, remedy: str) -> Finding:
    return Finding(check, ok, "found" if ok else "not found", "" if ok else remedy)


def _attempt(check: str, detail: str, look: object) -> Finding:
    """Return the result of a check that may raise ClientError as a finding."""
    assert callable(look)
    try:
        said = look()
    except ClientError as error:
        return _problem(check, error)
    return Finding(check, True, detail or str(said))


def _problem(check: str, error: ClientError) -> Finding:
    first = error.problems[0]
    return Finding(check, False, f"{first.what} ({first.where})", first.remedy)


def table(report: DoctorReport) -> RenderableType:
    """Return the findings as a table, with each remedy below its finding to save width."""
    drawn = grid("CHECK", "", "FOUND", rest="FOUND")
    for finding in report.findings:
        mark = "ok" if finding.ok else "FAILED"
        remedy = f"\nremedy: {finding.remedy}" if finding.remedy else ""
        drawn.add_row(finding.check, mark, finding.detail + remedy)
    return drawn
